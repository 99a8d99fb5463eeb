use super::*;
use rgpu_device::{Host, HostTarget, MemoryKind, Range};
use rgpu_protocol::transport::Transport;
use rgpu_softgpu::{Config, SoftGpu};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

struct Silent;

impl Host for Silent {
    fn print(&self, _: &[u8]) {}
    fn fetch(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Code::IllegalAddress.into())
    }
    fn host_func(&self, _: u64) {}
}

/// A link from one end to the other, within this process.
struct Both {
    sender: Arc<Sender>,
    receiver: Arc<Receiver>,
    around: Arc<Surroundings>,
    _program: UnixStream,
}

impl Both {
    fn new() -> Self {
        let config = Config { memory_bytes_per_device: 64 << 20, workers: 1, ..Config::default() };
        let device = SoftGpu::open(config, Arc::new(Silent)).unwrap();
        let (ours, program) = UnixStream::pair().unwrap();
        let out =
            Arc::new(Outgoing::new(Arc::new(Tcp::local(ours.into(), "test".into())) as Arc<dyn Transport>));
        let around = Arc::new(Surroundings { device, out, activity: Arc::default() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        let receiver = Receiver::new();
        receiver.start(Tcp::adopt(there.into(), "test".into()).unwrap(), [7; 32], around.clone());
        let tcp = Tcp::adopt(here.into(), "test".into()).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let (_, answer) = crate::app::hear_message(&tcp, 1 << 10, end).unwrap();
        assert!(answer.ends_with(&[7; 32]));
        let sender = Sender::start(tcp, around.clone()).unwrap();
        Self { sender, receiver, around, _program: program }
    }

    fn send(&self, transfer: u64, place: Result<CopyEnd>) -> mpsc::Receiver<Result<()>> {
        let (send, receive) = mpsc::channel();
        self.sender.send(transfer, place, Box::new(move |result| drop(send.send(result))));
        receive
    }

    fn receive(&self, transfer: u64, place: Result<CopyEnd>) -> mpsc::Receiver<Result<()>> {
        let (send, receive) = mpsc::channel();
        self.receiver.receive(transfer, place, Box::new(move |result| drop(send.send(result))));
        receive
    }

    /// A copy that has to succeed.
    fn copy(&self, transfer: u64, src: CopyEnd, dst: CopyEnd) {
        let received = self.receive(transfer, Ok(dst));
        let sent = self.send(transfer, Ok(src));
        assert_eq!((sent.recv().unwrap(), received.recv().unwrap()), (Ok(()), Ok(())));
    }
}

fn here(region: Region) -> CopyEnd {
    CopyEnd { stream: 0, region, here: true }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + (i >> 8) * 7) as u8).collect()
}

fn linear(bytes: &[u8]) -> Region {
    Region::linear(bytes.as_ptr() as u64, bytes.len() as u64)
}

#[test]
fn bytes_come_to_where_they_belong() {
    let both = Both::new();
    let source = bytes((3 << 20) + 17);
    for (transfer, length) in [(1, 0), (2, 1), (3, 4097), (4, (1 << 20) + 1), (5, source.len())] {
        let target = vec![0u8; length + 2];
        both.copy(transfer, here(linear(&source[..length])), here(linear(&target[1..=length])));
        assert!(
            target[1..=length] == source[..length] && target[0] == 0 && target[length + 1] == 0,
            "{length}"
        );
    }
    // Rows of 5,000 bytes, 6,000 apart, to rows 7,000 apart.
    let target = vec![0u8; 7000 * 300];
    let rows =
        |addr, row_pitch| Region { addr, row_pitch, slice_pitch: 0, width: 5000, height: 300, depth: 1 };
    both.copy(6, here(rows(source.as_ptr() as u64, 6000)), here(rows(target.as_ptr() as u64, 7000)));
    let whole = target.chunks(7000).zip(source.chunks(6000));
    assert!(whole.into_iter().all(|(t, s)| t[..5000] == s[..5000] && t[5000..].iter().all(|b| *b == 0)));
    assert!(both.around.activity.from_peers.load(Relaxed) > 4 << 20);
}

#[test]
fn several_take_turns_and_may_come_before_they_are_expected() {
    let both = Both::new();
    let source = bytes(2 << 20);
    let targets: Vec<Vec<u8>> = (0..4).map(|_| vec![0u8; source.len()]).collect();
    let sent: Vec<_> = (0..4).map(|transfer| both.send(transfer, Ok(here(linear(&source))))).collect();
    // The other way round.
    let received: Vec<_> =
        (0..4).rev().map(|t| both.receive(t, Ok(here(linear(&targets[t as usize]))))).collect();
    sent.into_iter().chain(received).for_each(|end| assert_eq!(end.recv().unwrap(), Ok(())));
    assert!(targets.iter().all(|target| *target == source));
}

#[test]
fn the_device_helps_where_memory_is_not_here() {
    let both = Both::new();
    let device = &both.around.device;
    let plan = device.reserve(Range { base: 0x2000_0000_0000, size: 1 << 40 }).unwrap();
    let (base, size) = (plan.devices[0].base, 8 << 20);
    device.mem_alloc(0, base, 2 * size, MemoryKind::Device).unwrap();
    let source = bytes(size as usize);
    let data = rgpu_device::HostData::Owned(source.clone());
    device.copy_to_device(0, Region::linear(base, size), 0, data).unwrap();
    let far = |region| CopyEnd { stream: 0, region, here: false };
    let (from, to) = (Region::linear(base + 3, size - 5), Region::linear(base + size + 1, size - 5));
    both.copy(1, far(from), far(to));
    // Narrow rows.
    let rows =
        |addr, row_pitch| Region { addr, row_pitch, slice_pitch: 0, width: 100, height: 5000, depth: 1 };
    both.copy(2, far(rows(base, 256)), far(rows(base + size + (4 << 20), 300)));
    let target = vec![0u8; size as usize];
    let (send, receive) = mpsc::channel();
    // SAFETY: the memory stays until the copy is done.
    let into = unsafe { HostTarget::new(linear(&target)) };
    let done = Box::new(move |result| drop(send.send(result)));
    device.copy_from_device_into(0, Region::linear(base + size, size), into, done);
    receive.recv().unwrap().unwrap();
    assert!(target[1..4 << 20] == source[3..(4 << 20) + 2]);
    let got = target[4 << 20..].chunks(300).take(5000);
    assert!(got.zip(source.chunks(256)).all(|(t, s)| t[..100] == s[..100]));
    // Memory that is not there is the copy's failure, on either side, and the link goes on.
    let nothing = Region::linear(base + 3 * size, 4096);
    let some = vec![0u8; 4096];
    let received = both.receive(3, Ok(here(linear(&some))));
    assert_eq!(both.send(3, Ok(far(nothing))).recv().unwrap().unwrap_err().code, Code::InvalidValue);
    assert_eq!(received.recv().unwrap().unwrap_err().code, Code::PeerAccessUnsupported);
    let received = both.receive(4, Ok(far(nothing)));
    assert_eq!(both.send(4, Ok(here(linear(&source[..4096])))).recv().unwrap(), Ok(()));
    assert_eq!(received.recv().unwrap().unwrap_err().code, Code::InvalidValue);
    both.copy(5, here(linear(&source[..4096])), here(linear(&some)));
    assert!(some == source[..4096]);
}

#[test]
fn what_is_wrong_with_one_copy_is_not_with_the_next() {
    let both = Both::new();
    let source = bytes(3 << 20);
    let wrong = || Err(Error::new(Code::InvalidValue, "wrong"));
    let code = |end: mpsc::Receiver<Result<()>>| end.recv().unwrap().map_err(|e| e.code);
    let target = vec![0u8; source.len()];
    let received = both.receive(1, wrong());
    assert_eq!(code(both.send(1, Ok(here(linear(&source))))), Ok(()));
    assert_eq!(code(received), Err(Code::InvalidValue));
    let received = both.receive(2, Ok(here(linear(&target))));
    assert_eq!(code(both.send(2, wrong())), Err(Code::InvalidValue));
    assert_eq!(code(received), Err(Code::PeerAccessUnsupported));
    // Too much, too little.
    for (transfer, length) in [(3, 100), (4, source.len())] {
        let received = both.receive(transfer, Ok(here(linear(&target[..length]))));
        assert_eq!(code(both.send(transfer, Ok(here(linear(&source[..2 << 20]))))), Ok(()));
        assert_eq!(code(received), Err(Code::InvalidValue));
    }
    both.copy(5, here(linear(&source)), here(linear(&target)));
    assert!(target == source);
}

#[test]
fn a_link_that_ends_fails_what_is_on_its_way() {
    let source = bytes(32 << 20);
    let code = |end: mpsc::Receiver<Result<()>>| end.recv().unwrap().unwrap_err().code;
    // Nobody expects it, so it gets stuck; then either side goes.
    for receiver_goes in [true, false] {
        let both = Both::new();
        let sent = both.send(1, Ok(here(linear(&source))));
        let waiting = both.receive(2, Ok(here(linear(&source))));
        if receiver_goes {
            both.receiver.close()
        } else {
            both.sender.close()
        }
        assert_eq!(code(sent), Code::PeerAccessUnsupported);
        if !receiver_goes {
            // What has come waits for the program's word, which is that nothing more will.
            both.receiver.close();
        }
        assert_eq!(code(waiting), Code::PeerAccessUnsupported);
        assert_eq!(code(both.send(3, Ok(here(linear(&source))))), Code::PeerAccessUnsupported);
        assert_eq!(code(both.receive(3, Ok(here(linear(&source))))), Code::PeerAccessUnsupported);
    }
}
