//! TLS: ovs-ofctl against an agent, and an agent against controllers, with certificates that openssl makes here.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use openflow::agent::Settings;
use openflow::serve::tls::{self, Reader};
use openflow::serve::{Channels, SocketEvent, Tls, TlsFiles, connect_first};

use crate::ofctl;
use crate::plain::Plain;

/// A folder with two CAs and what they have signed; it goes when the test ends.
struct Keys(PathBuf);

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

impl Keys {
    /// `None`, and the test is skipped, without openssl.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if Command::new("openssl").arg("version").output().is_err() {
            println!("skipped: no openssl");
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("openflow-tls-{}-{number}", std::process::id());
        let keys = Self(std::env::temp_dir().join(folder));
        fs::create_dir_all(&keys.0).unwrap();
        for ca in ["ca", "other"] {
            keys.openssl(&format!(
                "req -x509 {NEW_KEY} -keyout {ca}.key -out {ca}.pem -days 30 -subj /CN={ca}"
            ));
        }
        Some(keys)
    }

    fn openssl(&self, line: &str) {
        let run = Command::new("openssl").args(line.split(' ')).current_dir(&self.0).output();
        let run = run.unwrap();
        assert!(run.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&run.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A certificate for a host, signed by a CA.
    fn sign(&self, name: &str, host: &str, ca: &str, days: u32) -> TlsFiles {
        self.openssl(&format!(
            "req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name} -addext subjectAltName={host}"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -days {days} -copy_extensions copy -out {name}.pem"
        ));
        let key = self.path(&format!("{name}.key"));
        fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
        TlsFiles {
            private_key: key,
            certificate: self.path(&format!("{name}.pem")),
            ca_certificate: self.path("ca.pem"),
            crl: None,
        }
    }

    /// The list of a CA, with the certificates of these names.
    fn revoke(&self, ca: &str, names: &[&str]) -> PathBuf {
        let config = format!(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = {ca}.index\ncrlnumber = {ca}.number\n\
             default_md = sha256\ndefault_crl_days = 30\n"
        );
        fs::write(self.path(&format!("{ca}.number")), "01\n").unwrap();
        fs::write(self.path("ca.conf"), config).unwrap();
        fs::write(self.path(&format!("{ca}.index")), "").unwrap();
        let own = format!("ca -config ca.conf -cert {ca}.pem -keyfile {ca}.key");
        for name in names {
            self.openssl(&format!("{own} -revoke {name}.pem"));
        }
        self.openssl(&format!("{own} -gencrl -out {ca}.crl"));
        self.path(&format!("{ca}.crl"))
    }
}

const HERE: &str = "IP:127.0.0.1";

/// A switch with TLS, and what it reports.
struct Served {
    address: String,
    switch: Arc<Mutex<Plain>>,
    problems: Arc<Mutex<Vec<String>>>,
}

fn serve(tls: &Tls, controllers: &[String]) -> Served {
    let (sender, events) = std::sync::mpsc::sync_channel::<SocketEvent>(16);
    let mut channels =
        Channels::new(Settings::default(), Arc::new(move |event| sender.send(event).is_ok()));
    let address = channels.listen_with("127.0.0.1:0".parse().unwrap(), Some(tls.clone())).unwrap();
    for controller in controllers {
        channels.add_controller_with(controller, Some(tls.clone()));
    }
    let switch = Arc::new(Mutex::new(Plain::new()));
    let problems = Arc::new(Mutex::new(Vec::new()));
    let (shared, reported) = (switch.clone(), problems.clone());
    std::thread::spawn(move || {
        let start = Instant::now();
        while Arc::strong_count(&shared) > 1 {
            channels.tick(start.elapsed());
            if let Ok(event) = events.recv_timeout(Duration::from_millis(20)) {
                let mut switch = shared.lock().unwrap();
                channels.event(event, &mut *switch, start.elapsed());
            }
            channels.flush(start.elapsed());
            reported.lock().unwrap().extend(channels.take_news().iter().map(ToString::to_string));
        }
    });
    Served { address: address.to_string(), switch, problems }
}

impl Served {
    fn ofctl(&self, keys: &TlsFiles, arguments: &[&str]) -> String {
        let file = |path: &Path| path.to_str().unwrap().to_owned();
        let address = format!("ssl:{}", self.address);
        let run = Command::new("ovs-ofctl")
            .args(["--timeout=20", "-O", "OpenFlow13", "--private-key", &file(&keys.private_key)])
            .args([
                "--certificate",
                &file(&keys.certificate),
                "--ca-cert",
                &file(&keys.ca_certificate),
            ])
            .args(arguments.iter().map(|word| if *word == "SWITCH" { &address } else { *word }))
            .output()
            .unwrap();
        String::from_utf8_lossy(&[run.stderr, run.stdout].concat()).into_owned()
    }

    /// Waits until a text is reported.
    #[track_caller]
    fn reports(&self, text: &str) {
        let start = Instant::now();
        loop {
            let problems = self.problems.lock().unwrap().clone();
            if problems.iter().any(|problem| problem.contains(text)) {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "`{text}` not in {problems:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn ovs_ofctl_needs_a_certificate() {
    let Some(keys) = ofctl::is_there().then(Keys::new).flatten() else { return };
    let tls = Tls::load(&keys.sign("switch", HERE, "ca", 30)).unwrap();
    let switch = serve(&tls, &[]);
    let tool = keys.sign("tool", "DNS:tool", "ca", 30);
    let shown = switch.ofctl(&tool, &["show", "SWITCH"]);
    assert!(shown.contains("n_tables:4"), "{shown}");
    // A file of flows and their dump: many records each way.
    let flow = |n: u32| format!("table=1,priority={n},tcp,tp_dst={n},actions=output:2\n");
    let flows: String = (1..=3000).map(flow).collect();
    let file = keys.path("flows.txt");
    fs::write(&file, flows).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(switch.ofctl(&tool, &["--bundle", "replace-flows", "SWITCH", file]), "");
    assert_eq!(switch.ofctl(&tool, &["diff-flows", "SWITCH", file]), "");
    // A certificate of somebody else, and none at all.
    let stranger = TlsFiles {
        ca_certificate: tool.ca_certificate.clone(),
        ..keys.sign("stranger", "DNS:tool", "other", 30)
    };
    let shown = switch.ofctl(&stranger, &["show", "SWITCH"]);
    assert!(!shown.contains("n_tables"), "{shown}");
    switch.reports("signed by none of ca_certificate");
    // Of many in a second one is reported.
    std::thread::sleep(Duration::from_millis(1100));
    let mut plain = TcpStream::connect(&switch.address).unwrap();
    plain.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    let mut end = Vec::new();
    let _ = plain.read_to_end(&mut end);
    switch.reports("does not speak TLS");
    // The switch goes on.
    assert!(switch.ofctl(&tool, &["dump-aggregate", "SWITCH"]).contains("flow_count=3000"));
    drop(switch.switch);
}

/// A controller that accepts connections with these certificates: whether it was greeted.
fn controller(tls: Option<Tls>) -> (String, Arc<Mutex<bool>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (address, accepting(listener, tls))
}

fn accepting(listener: TcpListener, tls: Option<Tls>) -> Arc<Mutex<bool>> {
    let greeted = Arc::new(Mutex::new(false));
    let told = greeted.clone();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let mut hello = [0; 2];
            let is_read = match &tls {
                Some(tls) => tls
                    .accept(socket)
                    .is_ok_and(|stream| Reader::new(stream).read_exact(&mut hello).is_ok()),
                None => socket.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).is_err(),
            };
            if is_read && hello == [4, 0] {
                *told.lock().unwrap() = true;
                return;
            }
        }
    });
    greeted
}

#[test]
fn controllers_are_checked() {
    let Some(keys) = Keys::new() else { return };
    let expired = keys.sign("expired", HERE, "ca", 0);
    let own = Tls::load(&keys.sign("switch", HERE, "ca", 30)).unwrap();
    let tls = |files: TlsFiles| Some(Tls::load(&files).unwrap());
    let cases = [
        (tls(keys.sign("other-host", "DNS:of.example", "ca", 30)), "is for another host"),
        (tls(keys.sign("stranger", HERE, "other", 30)), "signed by none of ca_certificate"),
        (tls(expired), "has expired"),
        (None, "does not speak TLS"),
    ];
    let mut good = keys.sign("controller", HERE, "ca", 30);
    let (address, greeted) = controller(tls(good.clone()));
    let mut addresses = vec![address];
    let mut wrong = Vec::new();
    // A certificate that ends now is valid for up to a second more.
    std::thread::sleep(Duration::from_millis(1100));
    for (tls, problem) in cases {
        let (address, greeted) = controller(tls);
        wrong.push((address.clone(), problem, greeted));
        addresses.push(address);
    }
    let switch = serve(&own, &addresses);
    for (address, problem, greeted) in &wrong {
        switch.reports(&format!("controller {address}: "));
        switch.reports(problem);
        assert!(!*greeted.lock().unwrap());
    }
    let start = Instant::now();
    while !*greeted.lock().unwrap() {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", switch.problems);
        std::thread::sleep(Duration::from_millis(20));
    }
    // The controller does not know who signed the switch's certificate.
    good.ca_certificate = keys.path("other.pem");
    let (address, greeted) = controller(tls(good));
    let switch = serve(&own, &[address]);
    switch.reports("does not accept the switch's certificate");
    assert!(!*greeted.lock().unwrap());
}

/// A controller and a tool whose certificates are in the list of the CA, others, and one whose CA has no list.
#[test]
fn revoked_certificates_are_refused() {
    let Some(keys) = Keys::new() else { return };
    let tls = |files: &TlsFiles| Tls::load(files).unwrap();
    let good = keys.sign("good", HERE, "ca", 30);
    let bad = keys.sign("bad", HERE, "ca", 30);
    let crl = keys.revoke("ca", &["bad"]);
    // Both CAs sign; one has a list.
    let both = [fs::read(keys.path("ca.pem")).unwrap(), fs::read(keys.path("other.pem")).unwrap()];
    fs::write(keys.path("both.pem"), both.concat()).unwrap();
    let stranger = keys.sign("stranger", HERE, "other", 30);
    let ca_certificate = keys.path("both.pem");
    let own = keys.sign("switch", HERE, "ca", 30);
    let own = Tls::load(&TlsFiles { ca_certificate, crl: Some(crl), ..own }).unwrap();
    let controllers = [&good, &bad, &stranger].map(|files| controller(Some(tls(files))));
    let addresses = controllers.each_ref().map(|own| own.0.clone());
    let switch = serve(&own, &addresses);
    switch.reports(&format!(
        "{}: cannot be reached: the certificate of the other end has been revoked",
        addresses[1]
    ));
    switch.reports(&format!("{}: cannot be reached: crl has no list of the CA", addresses[2]));
    let start = Instant::now();
    while !*controllers[0].1.lock().unwrap() {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", switch.problems);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!*controllers[1].1.lock().unwrap() && !*controllers[2].1.lock().unwrap());
    // Who connects, likewise: with TLS 1.3 it hears of it with its first read.
    for (files, is_accepted) in [(&good, true), (&bad, false)] {
        let socket = TcpStream::connect(&switch.address).unwrap();
        let mut hello = [0; 2];
        let stream = tls(files).connect(socket, "127.0.0.1");
        let is_read = stream.is_ok_and(|own| Reader::new(own).read_exact(&mut hello).is_ok());
        assert_eq!(is_read, is_accepted);
    }
    switch.reports("connection from 127.0.0.1");
}

/// A host with two addresses: at one of them nobody speaks TLS, at the other one is the controller.
#[test]
fn a_handshake_that_fails_goes_on_with_the_next_address() {
    let Some(keys) = Keys::new() else { return };
    let own = Tls::load(&keys.sign("switch", HERE, "ca", 30)).unwrap();
    let good = Tls::load(&keys.sign("controller", "DNS:of.example", "ca", 30)).unwrap();
    for good_first in [false, true] {
        let [right, wrong] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [to_right, to_wrong] = [&right, &wrong].map(|own| own.local_addr().unwrap());
        std::thread::spawn(move || wrong.incoming().map_while(Result::ok).for_each(drop));
        let greeted = accepting(right, Some(good.clone()));
        let addresses = if good_first { [to_right, to_wrong] } else { [to_wrong, to_right] };
        let stream = connect_first("of.example", addresses, Some(&own)).unwrap();
        assert_eq!(stream.socket().peer_addr().unwrap(), to_right);
        tls::write(&stream, &[4, 0]).unwrap();
        let start = Instant::now();
        while !*greeted.lock().unwrap() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // The error is that of the last one.
    let none = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = connect_first("of.example", [none], Some(&own)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    let error = connect_first("of.example", [], Some(&own)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn files_are_checked() {
    let Some(keys) = Keys::new() else { return };
    let files = keys.sign("switch", HERE, "ca", 30);
    assert!(Tls::load(&files).is_ok());
    // Keys as older programs write them.
    for (name, new) in
        [("rsa", "genrsa -traditional -out rsa.old 2048"), ("ec", "ec -in switch.key -out ec.old")]
    {
        keys.openssl(new);
        let private_key = keys.path(&format!("{name}.old"));
        fs::set_permissions(&private_key, Permissions::from_mode(0o600)).unwrap();
        let own = TlsFiles { private_key, ..files.clone() };
        match name {
            "ec" => drop(Tls::load(&own).unwrap()),
            _ => assert!(Tls::load(&own).unwrap_err().contains("switch.pem: "), "it is read"),
        }
    }
    let error = |files: &TlsFiles| Tls::load(files).unwrap_err();
    let other = keys.sign("tool", HERE, "ca", 30);
    let mixed = TlsFiles { private_key: other.private_key.clone(), ..files.clone() };
    assert!(error(&mixed).contains("switch.pem: "), "{}", error(&mixed));
    let no_key = TlsFiles { private_key: files.certificate.clone(), ..files.clone() };
    fs::set_permissions(&files.certificate, Permissions::from_mode(0o600)).unwrap();
    assert!(error(&no_key).contains("no private key in PEM"), "{}", error(&no_key));
    let no_ca = TlsFiles { ca_certificate: files.private_key.clone(), ..files.clone() };
    assert!(error(&no_ca).contains("no certificate in PEM"), "{}", error(&no_ca));
    fs::set_permissions(&files.private_key, Permissions::from_mode(0o640)).unwrap();
    assert!(
        error(&files).contains("others may use the private key (mode 0640)"),
        "{}",
        error(&files)
    );
    let no_list = TlsFiles { crl: Some(files.certificate.clone()), ..files.clone() };
    fs::set_permissions(&files.private_key, Permissions::from_mode(0o600)).unwrap();
    assert!(error(&no_list).contains("no list of revoked certificates"), "{}", error(&no_list));
    let gone = TlsFiles { certificate: keys.path("none"), private_key: other.private_key, ..files };
    assert!(error(&gone).contains("none: No such file"), "{}", error(&gone));
}
