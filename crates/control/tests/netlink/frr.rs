//! FRR installs 100,000 BGP routes and the mirror keeps up.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use control::kernel::{Options, Target};

use crate::{
    namespace::{Namespace, run, skip},
    world::Watching,
};

const ROUTES: usize = 100_000;
/// `RTPROT_BGP`.
const BGP: u8 = 186;

struct Daemon(Child);

impl Daemon {
    /// Starts an FRR daemon with its files under `folder`, in namespace `other` or the thread's.
    fn start(program: &str, other: Option<&str>, folder: &Path, more: &[&str]) -> Daemon {
        let path = |name: String| folder.join(name).to_str().unwrap().to_owned();
        let mut words: Vec<String> =
            other.map_or(vec![], |name| ["ip", "netns", "exec", name].map(str::to_owned).to_vec());
        words.push(format!("/usr/lib/frr/{program}"));
        words.extend(["-P", "0", "-f"].map(str::to_owned));
        words.push(path(format!("{program}.conf")));
        words.extend(["-i".to_owned(), path(format!("{program}.pid"))]);
        words.extend(["-z".to_owned(), path("zserv.api".to_owned())]);
        words.extend(["--vty_socket".to_owned(), folder.to_str().unwrap().to_owned()]);
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Daemon(child)
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        // The daemons give up root for a user of their own.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn frr_installs_100_000_routes() {
    if !Path::new("/usr/lib/frr/zebra").exists() || !Path::new("/usr/lib/frr/bgpd").exists() {
        return skip("FRR (Debian package frr) is not installed");
    }
    let Some(namespace) = Namespace::enter() else { return };
    let other = namespace.beside();
    run(&format!("ip link add name va type veth peer name pa netns {other}"));
    run("ip link set va up");
    run("ip addr add 10.0.1.1/24 dev va");
    run(&format!("ip -n {other} link set pa up"));
    run(&format!("ip -n {other} addr add 10.0.1.2/24 dev pa"));

    let ours = Folder::new(&format!("{}-ours", namespace.name));
    let theirs = Folder::new(&format!("{}-theirs", namespace.name));
    ours.write("zebra.conf", "hostname ours\n");
    let bgp = |number: u32, id: &str, neighbour: &str, remote: u32| {
        format!(
            "router bgp {number}\n bgp router-id {id}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n neighbor {neighbour} remote-as {remote}\n \
             neighbor {neighbour} timers connect 1\n"
        )
    };
    ours.write("bgpd.conf", &bgp(65001, "10.0.1.1", "10.0.1.2", 65002));
    let mut announced = bgp(65002, "10.0.1.2", "10.0.1.1", 65001);
    announced += " address-family ipv4 unicast\n";
    for n in 0..ROUTES {
        let (a, b, c) = (20 + n / 65_536, n / 256 % 256, n % 256);
        writeln!(announced, "  network {a}.{b}.{c}.0/24").unwrap();
    }
    theirs.write("bgpd.conf", &announced);

    let mut w = Watching::start(&["va"], Options::default());
    let _zebra = Daemon::start("zebra", None, &ours.0, &[]);
    std::thread::sleep(Duration::from_secs(1));
    let _bgpd = Daemon::start("bgpd", None, &ours.0, &[]);
    let mut peer = Daemon::start("bgpd", Some(&other.to_string()), &theirs.0, &["-n", "-Z"]);

    let limit = Instant::now() + Duration::from_secs(120);
    let count = |w: &Watching| w.world.routes.values().filter(|r| r.protocol == BGP).count();
    let (mut first, mut seen) = (None, 0);
    while seen < ROUTES {
        assert!(Instant::now() < limit, "{seen} routes: {:?}", w.mirror.stats());
        w.take(Duration::from_millis(5));
        seen = count(&w);
        if seen > 0 {
            first.get_or_insert_with(Instant::now);
        }
    }
    let took = first.map_or(Duration::ZERO, |at| at.elapsed());
    println!("from the first route to the {ROUTES}th: {took:?}; {:?}", w.mirror.stats());
    assert!(w.world.routes.values().any(|route| matches!(route.target, Target::NextHop(_))));
    w.settle("all routes");
    w.audit_is_clean("all routes");

    peer.end();
    // The session's end withdraws them all.
    run(&format!("ip -n {other} link set pa down"));
    let limit = Instant::now() + Duration::from_secs(60);
    while count(&w) > 0 {
        assert!(Instant::now() < limit, "{} routes stay", count(&w));
        w.take(Duration::from_millis(20));
    }
    w.settle("none");
}
