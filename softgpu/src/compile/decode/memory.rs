//! Opcodes that touch memory.

use super::Reader;
use crate::compile::op::*;
use crate::compile::opcode::{Combine, Opcode, Scope, Semantics};
use rgpu_image::ptx::ast::{Space, Type};

impl Reader {
    /// `mov`
    pub(crate) fn mov(&mut self) -> Option<Op> {
        let ty = self.ty()?;
        (ty == Type::Pred || (16..=64).contains(&ty.bits())).then_some(Op::Mov { ty })
    }

    /// `cvta`
    pub(crate) fn cvta(&mut self) -> Option<Op> {
        let to = Self::flag(&mut self.form.to);
        let space = self.take_space()??;
        self.ty_of(&[Type::U64])?;
        match space {
            Space::Shared | Space::SharedCta | Space::SharedCluster => {
                Some(Op::Cvta { place: MemoryTarget::Shared, to })
            }
            Space::Local => Some(Op::Cvta { place: MemoryTarget::Local, to }),
            Space::Global | Space::Const | Space::Param | Space::ParamEntry => {
                Some(Op::Cvta { place: MemoryTarget::Generic, to })
            }
            _ => None,
        }
    }

    /// `isspacep`
    pub(crate) fn isspacep(&mut self) -> Option<Op> {
        let space = match self.take_space()?? {
            Space::Const => SpaceTest::Const,
            Space::Global => SpaceTest::Global,
            Space::Local => SpaceTest::Local,
            Space::Shared | Space::SharedCta => SpaceTest::Shared,
            Space::SharedCluster => SpaceTest::Cluster,
            Space::Param | Space::ParamEntry => SpaceTest::Param,
            _ => return None,
        };
        Some(Op::Isspacep { space })
    }

    /// `ld`, `ldu`
    pub(crate) fn load(&mut self) -> Option<Op> {
        let (place, ty, vector, order) = self.access()?;
        Some(Op::Ld { place, ty, vector, order })
    }

    /// `st`
    pub(crate) fn store(&mut self) -> Option<Op> {
        if self.other("async") {
            let (ty, vector) = self.told_access()?;
            return Some(Op::StAsync { ty, vector });
        }
        let (place, ty, vector, order) = self.access()?;
        if place == MemoryTarget::Constant || place == MemoryTarget::Param && order != Order::Weak {
            return None;
        }
        Some(Op::St { place, ty, vector, order })
    }

    /// What a load or store accesses, and how.
    fn access(&mut self) -> Option<(MemoryTarget, Type, u32, Order)> {
        let place = match self.take_space()? {
            None | Some(Space::Global) => MemoryTarget::Generic,
            Some(Space::Const) => MemoryTarget::Constant,
            Some(Space::Local) => MemoryTarget::Local,
            Some(Space::Shared | Space::SharedCta | Space::SharedCluster) => MemoryTarget::Shared,
            Some(Space::Param | Space::ParamEntry | Space::ParamFunc) => MemoryTarget::Param,
            Some(_) => return None,
        };
        let read_only = std::mem::take(&mut self.form.nc);
        self.form.scope = None;
        let order = match self.form.semantics.take() {
            None | Some(Semantics::Weak) => Order::Weak,
            Some(Semantics::SeqCst | Semantics::AcqRel) => return None,
            Some(Semantics::Mmio) if !self.other("relaxed") => return None,
            Some(_) => Order::Strong,
        };
        self.other("L2::cache_hint");
        let vector = std::mem::replace(&mut self.form.vector, 1);
        let ty = self.ty()?;
        // Devices make one access of a vector. Programs that hand each other vectors without saying so pass by the caches with them.
        let whole = self.form.uncached && !read_only && vector > 1 && ty.bytes() * vector <= 16;
        let order = match order {
            Order::Weak if whole && place == MemoryTarget::Generic => Order::Together,
            order => order,
        };
        let simple = matches!(
            ty,
            Type::B8
                | Type::U8
                | Type::S8
                | Type::B16
                | Type::U16
                | Type::S16
                | Type::B32
                | Type::U32
                | Type::S32
                | Type::F32
                | Type::B64
                | Type::U64
                | Type::S64
                | Type::F64
                | Type::F16
                | Type::Bf16
                | Type::F16x2
                | Type::Bf16x2
        );
        simple.then_some((place, ty, vector, order))
    }

    /// What `st.async` and `red.async` access. They exist for the cluster's shared memory only, and tell a barrier of the bytes.
    fn told_access(&mut self) -> Option<(Type, u32)> {
        let told = self.other("mbarrier::complete_tx::bytes");
        let weak = matches!(self.form.semantics.take(), None | Some(Semantics::Weak | Semantics::Relaxed));
        let near = matches!(self.form.scope.take(), None | Some(Scope::Cluster));
        if !told || !weak || !near || !matches!(self.take_space()?, None | Some(Space::SharedCluster)) {
            return None;
        }
        let vector = std::mem::replace(&mut self.form.vector, 1);
        let words = [Type::B32, Type::U32, Type::S32, Type::F32, Type::B64, Type::U64, Type::S64, Type::F64];
        let ty = self.ty_of(&words)?;
        (vector <= 4).then_some((ty, vector))
    }

    /// `mapa`
    pub(crate) fn mapa(&mut self) -> Option<Op> {
        let (ty, generic) = self.cluster_address()?;
        Some(Op::Mapa { ty, generic })
    }

    /// `getctarank`
    pub(crate) fn get_cta_rank(&mut self) -> Option<Op> {
        let (ty, generic) = self.cluster_address()?;
        Some(Op::GetCtaRank { ty, generic })
    }

    /// The type of an address of shared memory, and whether it is generic.
    fn cluster_address(&mut self) -> Option<(Type, bool)> {
        let generic = match self.take_space()? {
            None => true,
            Some(Space::SharedCluster) => false,
            Some(_) => return None,
        };
        Some((self.ty_of(&[Type::U32, Type::U64])?, generic))
    }

    /// `membar`, `fence`: some combination of modifiers says which accesses are ordered; here all are.
    pub(crate) fn fence(&mut self) -> Option<Op> {
        // Between the ways to memory that a device has there is one here.
        let ways = ["async", "alias", "async::generic", "tensormap::generic"];
        if self.other("proxy") && ways.iter().any(|way| self.other(way)) {
            self.form.spaces.clear();
        }
        self.other("mbarrier_init");
        for part in ["sync_restrict::shared::cta", "sync_restrict::shared::cluster"] {
            self.other(part);
        }
        let f = &mut self.form;
        (f.semantics, f.scope) = (None, None);
        Some(Op::Fence)
    }

    /// `prefetch`, `prefetchu`, `applypriority`, and `discard`, which allows bytes to be lost, but need not lose them.
    pub(crate) fn cache_hint(&mut self) -> Option<Op> {
        self.form.spaces.clear();
        self.form.others.retain(|m| !matches!(m.as_str(), "L1" | "L2" | "L2::evict_normal" | "tensormap"));
        Some(Op::Nop)
    }

    /// `createpolicy`: a policy says how long data are worth keeping in a cache, so that any value will do.
    pub(crate) fn createpolicy(&mut self) -> Option<Op> {
        self.ty_of(&[Type::B64])?;
        if self.other("cvt") {
            return self.other("L2").then_some(Op::Policy);
        }
        if self.other("range") {
            if !matches!(self.take_space()?, None | Some(Space::Global)) {
                return None;
            }
        } else if !self.other("fractional") {
            return None;
        }
        let priorities = ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];
        let fits = match &self.form.others[..] {
            [first] => priorities.contains(&first.as_str()),
            [first, second] => {
                priorities.contains(&first.as_str())
                    && matches!(second.as_str(), "L2::evict_first" | "L2::evict_unchanged")
            }
            _ => false,
        };
        self.form.others.clear();
        fits.then_some(Op::Policy)
    }

    /// `atom`, `red`
    pub(crate) fn atomic(&mut self) -> Option<Op> {
        let result = self.form.opcode == Opcode::Atom;
        if !result && self.other("async") {
            return self.told_reduction();
        }
        let shared = match self.take_space()? {
            None | Some(Space::Global) => false,
            Some(Space::Shared | Space::SharedCta | Space::SharedCluster) => true,
            Some(_) => return None,
        };
        (self.form.semantics, self.form.scope) = (None, None);
        self.form.noftz = false;
        self.other("L2::cache_hint");
        let op = self.form.combine.take()?;
        let vector = std::mem::replace(&mut self.form.vector, 1);
        let ty = self.ty()?;
        use Combine as C;
        if vector > 1 {
            let fits = match ty {
                Type::F32 => vector <= 4 && op == C::Add,
                Type::F16x2 | Type::Bf16x2 => vector <= 4,
                Type::F16 | Type::Bf16 => true,
                _ => false,
            };
            let fits = fits && !shared && matches!(op, C::Add | C::Min | C::Max);
            return fits.then_some(Op::Atom { shared, op, ty, vector, result });
        }
        let fits = match op {
            C::And | C::Or | C::Xor => matches!(ty, Type::B32 | Type::B64),
            C::Exch => matches!(ty, Type::B32 | Type::B64),
            C::Cas => matches!(ty, Type::B16 | Type::B32 | Type::B64) && result,
            C::Add => {
                matches!(
                    ty,
                    Type::U32
                        | Type::S32
                        | Type::U64
                        | Type::S64
                        | Type::F32
                        | Type::F64
                        | Type::F16
                        | Type::F16x2
                        | Type::Bf16
                        | Type::Bf16x2
                )
            }
            C::Inc | C::Dec => ty == Type::U32,
            C::Min | C::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
            C::Popc => false,
        };
        fits.then_some(Op::Atom { shared, op, ty, vector, result })
    }

    /// `red.async`
    fn told_reduction(&mut self) -> Option<Op> {
        use Combine as C;
        let op = self.form.combine.take()?;
        let (ty, vector) = self.told_access()?;
        let fits = match op {
            C::Inc | C::Dec => ty == Type::U32,
            C::Min | C::Max => matches!(ty, Type::U32 | Type::S32),
            C::Add => matches!(ty, Type::U32 | Type::S32 | Type::U64),
            C::And | C::Or | C::Xor => ty == Type::B32,
            C::Exch | C::Cas | C::Popc => false,
        };
        (fits && vector == 1).then_some(Op::RedAsync { op, ty })
    }

    /// `cp.async` and what belongs to it.
    pub(crate) fn cp(&mut self) -> Option<Op> {
        if !self.other("async") {
            return None;
        }
        if self.other("mbarrier") {
            // The copies are complete already. With `.noinc` that is one of the expected arrivals; without it
            // is one more that is expected, and comes at once.
            if !self.other("arrive") {
                return None;
            }
            let shared = self.mbarrier_space()?;
            self.ty_of(&[Type::B64])?;
            if !self.other("noinc") {
                return Some(Op::Nop);
            }
            let op = MbarrierOp::Arrive { drop: false, result: false, expects: false };
            return Some(Op::Mbarrier { op, shared });
        }
        let bulk = self.other("bulk");
        // The copy is performed at once, so that there is never anything to wait for.
        if self.other("commit_group") || self.other("wait_group") || self.other("wait_all") {
            self.other("read");
            return Some(Op::Nop);
        }
        if bulk {
            return self.bulk();
        }
        let spaces = std::mem::take(&mut self.form.spaces);
        let hint = self.other("L2::cache_hint");
        match spaces[..] {
            [Space::Shared | Space::SharedCta, Space::Global] => Some(Op::CpAsync { hint }),
            _ => None,
        }
    }

    /// Where the object is: whether in shared memory, or at a generic address.
    fn mbarrier_space(&mut self) -> Option<bool> {
        match self.take_space()? {
            None => Some(false),
            Some(Space::Shared | Space::SharedCta | Space::SharedCluster) => Some(true),
            Some(_) => None,
        }
    }

    /// `mbarrier`
    pub(crate) fn mbarrier(&mut self) -> Option<Op> {
        // Whatever the order that is asked for, one worker runs the whole block.
        self.form
            .others
            .retain(|m| !matches!(m.as_str(), "release" | "acquire" | "relaxed" | "cta" | "cluster"));
        (self.form.semantics, self.form.scope) = (None, None);
        let shared = self.mbarrier_space()?;
        self.ty_of(&[Type::B64])?;
        let no_complete = self.other("noComplete");
        let expects = self.other("expect_tx");
        let op = if self.other("init") {
            MbarrierOp::Init
        } else if self.other("inval") {
            MbarrierOp::Invalidate
        } else if self.other("arrive") {
            MbarrierOp::Arrive { drop: false, result: true, expects }
        } else if self.other("arrive_drop") {
            MbarrierOp::Arrive { drop: true, result: true, expects }
        } else if expects {
            MbarrierOp::Expect
        } else if self.other("complete_tx") {
            MbarrierOp::Complete
        } else if self.other("test_wait") || self.other("try_wait") {
            MbarrierOp::Test { parity: self.other("parity") }
        } else if self.other("pending_count") {
            MbarrierOp::Pending
        } else {
            return None;
        };
        let arrives = matches!(op, MbarrierOp::Arrive { .. });
        let sane = (!no_complete || arrives && !expects) && (!expects || arrives || op == MbarrierOp::Expect);
        sane.then_some(Op::Mbarrier { op, shared })
    }
}
