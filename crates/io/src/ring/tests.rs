//! Tests of the ring: two ends of it in one process.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use fingerpost_packet::frame::Pool;

/// A path of its own for each test.
fn path(name: &str) -> String {
    let name = format!("fingerpost-ring-{name}-{}", std::process::id());
    std::env::temp_dir().join(name).to_string_lossy().into_owned()
}

struct End {
    port: Ring,
    pool: Pool,
    batch: Box<Batch>,
}

fn end(path: &str) -> End {
    let pool = Pool::new(2048, 2048);
    End { port: Ring::open(path).unwrap(), batch: Batch::new(&pool), pool }
}

impl End {
    fn stat(&self, name: &str) -> u64 {
        let mut found = None;
        self.port.stats(&mut |n, value| found = found.or((n == name).then_some(value)));
        found.unwrap()
    }

    /// Looks, as rounds of a worker do, until somebody is there.
    fn meet(&mut self) {
        for _ in 0..2 * LOOK_EVERY {
            assert_eq!(self.port.recv(&mut self.batch).unwrap(), 0);
        }
        assert!(matches!(self.port.state, State::Joined(_)));
    }

    fn put(&mut self, len: usize, first: u32) {
        let mut packet = self.pool.alloc().unwrap();
        assert!(packet.set_len(len));
        packet.bytes_mut().fill(0xa5);
        packet.bytes_mut()[..4].copy_from_slice(&first.to_be_bytes());
        self.batch.push(packet).unwrap();
    }

    fn send(&mut self) -> usize {
        self.port.send(&mut self.batch).unwrap()
    }

    /// What came, each by its first bytes and its length.
    fn came(&mut self) -> Vec<(u32, usize)> {
        let mut seen = Vec::new();
        while self.port.recv(&mut self.batch).unwrap() > 0 {
            for i in 0..self.batch.len() {
                let bytes = self.batch.bytes(i);
                let first = bytes.first_chunk().map_or(u32::MAX, |four| u32::from_be_bytes(*four));
                assert!(bytes.get(4..).is_none_or(|rest| rest.iter().all(|&byte| byte == 0xa5)));
                seen.push((first, bytes.len()));
            }
            self.batch.clear();
        }
        seen
    }
}

fn pair(name: &str) -> (End, End) {
    let path = path(name);
    let (mut a, mut b) = (end(&path), end(&path));
    assert!(a.port.listener.is_some() && b.port.listener.is_none());
    a.meet();
    b.meet();
    (a, b)
}

#[test]
fn frames_cross_both_ways_whole_and_in_order() {
    let (mut a, mut b) = pair("cross");
    for (first, len) in [(1, 60), (2, 61), (3, 1514), (4, 14), (5, 1792)] {
        a.put(len, first);
        b.put(len + 1 - usize::from(len == 1792), first + 10);
    }
    assert_eq!((a.send(), b.send()), (5, 5));
    assert_eq!(b.came(), [(1, 60), (2, 61), (3, 1514), (4, 14), (5, 1792)]);
    assert_eq!(a.came(), [(11, 61), (12, 62), (13, 1515), (14, 15), (15, 1792)]);
    assert_eq!((a.pool.free(), b.pool.free()), (2048, 2048), "nothing is kept");
}

#[test]
fn a_full_ring_takes_no_more_and_loses_nothing() {
    let (mut a, mut b) = pair("full");
    let (mut next, mut sent) = (0, 0);
    for _ in 0..4 {
        while a.batch.room() > 0 {
            a.put(60, next);
            next += 1;
        }
        sent += a.send();
    }
    assert_eq!((sent, a.stat("tx_full")), (ENTRIES as usize, 2));
    assert_eq!(a.batch.len(), next as usize - sent);
    let mut seen = b.came();
    while !a.batch.is_empty() {
        a.send();
        seen.extend(b.came());
    }
    let firsts: Vec<u32> = seen.iter().map(|frame| frame.0).collect();
    assert_eq!(firsts, (0..next).collect::<Vec<_>>());
}

#[test]
fn without_a_free_frame_they_wait() {
    let (mut a, mut b) = pair("buffers");
    (0..20).for_each(|i| a.put(60, i));
    a.send();
    let mut kept = Vec::new();
    while b.pool.free() > 7 {
        kept.extend(b.pool.alloc());
    }
    assert_eq!(b.port.recv(&mut b.batch).unwrap(), 7);
    assert_eq!((b.port.recv(&mut b.batch).unwrap(), b.stat("no_buffer")), (0, 2));
    kept.clear();
    b.batch.clear();
    assert_eq!(b.came().len(), 13);
}

#[test]
fn the_first_one_waits_for_another_and_the_second_one_ends() {
    let (mut a, mut b) = pair("peers");
    b.put(60, 1);
    b.send();
    drop(b);
    assert_eq!(a.came(), [(1, 60)], "sent before it went");
    for _ in 0..2 * LOOK_EVERY {
        assert_eq!(a.port.recv(&mut a.batch).unwrap(), 0);
    }
    a.put(60, 7);
    assert_eq!((a.send(), a.batch.len()), (0, 1), "nobody is there");
    let mut b = end(&a.port.path);
    a.batch.clear();
    a.meet();
    b.meet();
    a.put(60, 2);
    assert_eq!((a.send(), b.came(), a.stat("peers")), (1, vec![(2, 60)], 2));
    let gone = a.port.path.clone();
    drop(a);
    let error = (0..2 * LOOK_EVERY).find_map(|_| b.port.recv(&mut b.batch).err()).unwrap();
    assert!(error.to_string().contains("the other side is gone"), "{error}");
    assert!(!Path::new(&gone).exists());
}

#[test]
fn what_was_left_behind_is_cleared_away_and_what_is_no_socket_stays() {
    let path = path("stale");
    drop(UnixListener::bind(&path).unwrap());
    assert!(Path::new(&path).exists());
    assert!(end(&path).port.listener.is_some());
    fs::write(&path, "mine").unwrap();
    let error = Ring::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("what stands there is no socket"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    fs::remove_file(&path).unwrap();
    let error = Ring::open("/no/such/folder/x").map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("bind") && error.contains("folder"), "{error}");
}

/// Names the socket that a process of another user is to try.
const TRIED: &str = "FINGERPOST_RING_OF_ANOTHER";

/// Does nothing unless it is started by the next test, as another user.
#[test]
fn a_stranger() {
    let Ok(path) = std::env::var(TRIED) else { return };
    match UnixStream::connect(&path) {
        Err(error) => println!("refused: {error}"),
        Ok(mut stream) => println!("came: {:?}", stream.read(&mut [0; 64])),
    }
    let (listens, new) = (format!("{path}-of-another"), format!("{path}-new"));
    let socket = UnixListener::bind(&new).unwrap();
    // It is not seen before it listens.
    fs::rename(&new, &listens).unwrap();
    drop(socket.accept());
    fs::remove_file(&listens).unwrap();
}

#[test]
fn processes_of_other_users_are_refused() {
    let folder = std::env::temp_dir().join(format!("fingerpost-rings-{}", std::process::id()));
    let program = folder.join("tests");
    fs::create_dir(&folder).unwrap();
    // Where another user may look, and make a socket.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let path = folder.join("ring").to_string_lossy().into_owned();
    let mut a = end(&path);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, MODE);
    if user::own() != user::ROOT {
        fs::remove_dir_all(&folder).unwrap();
        return println!("skipped: needs root");
    }
    let listens = format!("{path}-of-another");
    // By the mode, and by the user where the mode lets everybody in.
    for (mode, said) in [(MODE, "refused: Permission denied"), (0o666, "came: Ok(0)")] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mut tries = Command::new(&program);
        tries.args(["--exact", "ring::tests::a_stranger", "--nocapture"]);
        tries.env(TRIED, &path).uid(65534).gid(65534).stdout(Stdio::piped());
        let (child, begun) = (tries.spawn().unwrap(), Instant::now());
        while !is_socket(&listens) {
            assert_eq!(a.port.recv(&mut a.batch).unwrap(), 0);
            assert!(begun.elapsed() < Duration::from_secs(30), "it does not come");
        }
        let error = Ring::open(&listens).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("user 65534 listens there"), "{error}");
        let output = child.wait_with_output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.contains(said), "{output}");
    }
    assert_eq!((a.stat("strangers"), a.stat("peers")), (1, 0));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_neighbor_gone_mad_does_no_harm() {
    let (mut a, mut b) = pair("mad");
    let State::Joined(joined) = &mut a.port.state else { panic!() };
    for len in [u64::MAX, 5000, 0, 1800] {
        joined.to.put(len);
    }
    joined.to.submit();
    assert_eq!(b.came(), vec![(u32::MAX, 0); 4]);
    assert_eq!(b.stat("bad_lengths"), 3);
    // Memory that could be cut off is not touched.
    let (one, other) = UnixStream::pair().unwrap();
    let path = path("file");
    let file = fs::File::create_new(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.set_len(2 * way(CHUNK) as u64).unwrap();
    handover::give(&one, &file, GREETING).unwrap();
    assert!(Joined::second(&other, CHUNK).is_err());
    handover::give(&one, &handover::memory(way(CHUNK)).unwrap(), GREETING).unwrap();
    let error = Joined::second(&other, CHUNK).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("too small"), "{error}");
    handover::give(&one, &handover::memory(2 * way(CHUNK)).unwrap(), b"something else..").unwrap();
    assert!(Joined::second(&other, CHUNK).is_err());
}

/// Who waits is woken: no frame stays behind, whatever the order of sleeping and sending.
#[test]
fn who_sleeps_is_woken() {
    use super::super::afxdp::PollWait;
    use fingerpost_packet::device::Wait;
    const COUNT: u32 = 20_000;
    let path = path("sleep");
    let (mut a, mut b) = (end(&path), end(&path));
    a.meet();
    b.meet();
    let receiver = std::thread::spawn(move || {
        let (mut wait, _waker) = PollWait::new().unwrap();
        let (mut seen, mut fds, mut slept) = (0, Vec::new(), 0);
        let begun = Instant::now();
        while seen < COUNT {
            for (first, _) in b.came() {
                assert_eq!(first, seen);
                seen += 1;
            }
            fds.clear();
            b.port.wait_fds(&mut fds);
            if !fds.is_empty() && seen < COUNT {
                slept += 1;
                // Without wakeups this would take hours.
                wait.wait(&fds, Duration::from_secs(5));
            }
            assert!(begun.elapsed().as_secs() < 60, "{seen} of {COUNT}");
        }
        slept
    });
    for next in 0..COUNT {
        a.put(60, next);
        while a.send() == 0 {
            std::thread::yield_now();
        }
        if next % 64 == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    assert!(receiver.join().unwrap() > 10, "it slept");
}
