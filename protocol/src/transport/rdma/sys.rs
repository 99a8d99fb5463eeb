//! The part of libibverbs's binary interface that is used here, opened at run time.
//!
//! Layouts and numbers are those of the public header `infiniband/verbs.h` (interface version IBVERBS_1.1, unchanged since
//! 2009); a test compares the offsets that matter with what the header's compiler says.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::sync::OnceLock;

/// An InfiniBand global identifier.
pub(super) type Gid = [u8; 16];

#[repr(C)]
pub(super) struct Device {
    _private: [u8; 0],
}

#[repr(C)]
pub(super) struct Pd {
    _private: [u8; 0],
}

/// `struct ibv_context`, as far as the functions in it that are not exported.
#[repr(C)]
pub(super) struct Context {
    pub device: *mut Device,
    _before_poll: [usize; 11],
    pub poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    _before_post: [usize; 12],
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
}

#[repr(C)]
pub(super) struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
}

#[repr(C)]
pub(super) struct Cq {
    pub context: *mut Context,
}

#[repr(C)]
pub(super) struct Qp {
    pub context: *mut Context,
    _before_number: [u64; 5],
    _handle: u32,
    pub number: u32,
}

#[repr(C)]
pub(super) struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
pub(super) struct SendWr {
    pub id: u64,
    pub next: *mut SendWr,
    pub list: *mut Sge,
    pub count: c_int,
    pub opcode: c_int,
    pub flags: c_uint,
    /// Immediate data, big-endian.
    pub imm: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    _rest: [u8; 76],
}

impl SendWr {
    pub(super) fn zeroed() -> Self {
        // SAFETY: made of numbers and pointers, for which zero is a valid value.
        unsafe { std::mem::zeroed() }
    }
}

#[repr(C)]
pub(super) struct RecvWr {
    pub id: u64,
    pub next: *mut RecvWr,
    pub list: *mut Sge,
    pub count: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Wc {
    pub id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_error: u32,
    pub bytes: u32,
    /// Immediate data, big-endian.
    pub imm: u32,
    pub qp: u32,
    pub source: u32,
    pub flags: u32,
    pub pkey: u16,
    pub slid: u16,
    pub sl: u8,
    pub path: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub(super) struct QpInitAttr {
    pub context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut c_void,
    pub cap: QpCap,
    pub kind: u32,
    pub all_signaled: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct GlobalRoute {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub path: u8,
    pub rate: u8,
    pub is_global: u8,
    pub port: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpAttr {
    pub state: u32,
    pub current: u32,
    pub path_mtu: u32,
    pub migration: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp: u32,
    pub access: u32,
    pub cap: QpCap,
    pub ah: AhAttr,
    pub alternative: AhAttr,
    pub pkey_index: u16,
    pub alternative_pkey_index: u16,
    pub notify: u8,
    pub draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port: u8,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub alternative_port: u8,
    pub alternative_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_port_attr`, with room for what newer libraries add.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct PortAttr {
    pub state: u32,
    pub max_mtu: u32,
    pub active_mtu: u32,
    pub gids: c_int,
    _caps: [u32; 4],
    _pkeys: u16,
    pub lid: u16,
    _sm: u16,
    _small: [u8; 8],
    pub link_layer: u8,
    _flags: u8,
    _more: [u32; 8],
}

pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(super) const OP_WRITE: c_int = 0;
pub(super) const OP_WRITE_WITH_IMM: c_int = 1;
pub(super) const SEND_SIGNALED: c_uint = 2;
pub(super) const WC_RECV: u32 = 128;
pub(super) const QPT_RC: u32 = 2;
pub(super) const STATE_INIT: u32 = 1;
pub(super) const STATE_RTR: u32 = 2;
pub(super) const STATE_RTS: u32 = 3;
pub(super) const STATE_ERROR: u32 = 6;
pub(super) const MASK_STATE: c_int = 1;
pub(super) const MASK_INIT: c_int = 57;
pub(super) const MASK_RTR: c_int = 1_216_897;
pub(super) const MASK_RTS: c_int = 77_313;
pub(super) const PORT_ACTIVE: u32 = 4;
pub(super) const LINK_ETHERNET: u8 = 2;

macro_rules! library {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The exported functions.
        pub(super) struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _library: libloading::Library,
        }

        impl Library {
            fn open() -> Result<Self, libloading::Error> {
                // SAFETY: the library's initialisers are harmless, and the symbols have the types that the header gives.
                unsafe {
                    let library = libloading::Library::new("libibverbs.so.1")?;
                    Ok(Self {
                        $($name: *library.get(concat!("ibv_", stringify!($name), "\0").as_bytes())?,)*
                        _library: library,
                    })
                }
            }
        }
    };
}

library! {
    get_device_list: fn(*mut c_int) -> *mut *mut Device;
    free_device_list: fn(*mut *mut Device);
    get_device_name: fn(*mut Device) -> *const c_char;
    open_device: fn(*mut Device) -> *mut Context;
    close_device: fn(*mut Context) -> c_int;
    query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    query_gid: fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    alloc_pd: fn(*mut Context) -> *mut Pd;
    dealloc_pd: fn(*mut Pd) -> c_int;
    reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: fn(*mut Mr) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut CompChannel;
    destroy_comp_channel: fn(*mut CompChannel) -> c_int;
    create_cq: fn(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    destroy_cq: fn(*mut Cq) -> c_int;
    get_cq_event: fn(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut Cq, c_uint);
    create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut Qp) -> c_int;
    wc_status_str: fn(u32) -> *const c_char;
}

/// The library, if this machine has it.
pub(super) fn library() -> io::Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let opened = LIBRARY.get_or_init(|| Library::open().map_err(|e| e.to_string()));
    opened.as_ref().map_err(|e| io::Error::new(io::ErrorKind::NotFound, e.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_the_headers() {
        assert_eq!(offset_of!(Context, poll_cq), 8 + 88);
        assert_eq!(offset_of!(Context, req_notify_cq), 8 + 96);
        assert_eq!(offset_of!(Context, post_send), 8 + 200);
        assert_eq!(offset_of!(Context, post_recv), 8 + 208);
        assert_eq!((offset_of!(Qp, number), offset_of!(CompChannel, fd)), (52, 8));
        assert_eq!((offset_of!(Mr, lkey), offset_of!(Mr, rkey)), (36, 40));
        assert_eq!((size_of::<SendWr>(), size_of::<RecvWr>(), size_of::<Sge>()), (128, 32, 16));
        assert_eq!((offset_of!(SendWr, imm), offset_of!(SendWr, rkey)), (36, 48));
        assert_eq!((size_of::<Wc>(), offset_of!(Wc, imm), offset_of!(Wc, opcode)), (48, 24, 12));
        assert_eq!((size_of::<QpAttr>(), offset_of!(QpAttr, cap), offset_of!(QpAttr, ah)), (144, 36, 56));
        assert_eq!((offset_of!(QpAttr, pkey_index), offset_of!(QpAttr, rnr_retry)), (120, 132));
        assert_eq!((size_of::<AhAttr>(), offset_of!(AhAttr, dlid), offset_of!(AhAttr, port)), (32, 24, 30));
        assert_eq!((offset_of!(GlobalRoute, sgid_index), size_of::<GlobalRoute>()), (20, 24));
        assert_eq!((size_of::<QpInitAttr>(), offset_of!(QpInitAttr, kind)), (64, 52));
        assert_eq!((offset_of!(PortAttr, lid), offset_of!(PortAttr, link_layer)), (34, 46));
        assert!(size_of::<PortAttr>() >= 52);
    }
}
