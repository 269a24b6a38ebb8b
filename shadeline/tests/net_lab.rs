//! The lab of docs/lab.md: an ordinary user runs a live router between two hosts in `unshare -Urn`, with exactly the
//! files of the example.

#[path = "common/lab.rs"]
mod lab;

use std::fs;

use lab::Lab;

#[test]
fn an_ordinary_user_runs_the_live_lab() {
    let Some(lab) = Lab::new() else { return };
    let text = lab.run(
        "left ping -n -c 3 -i 0.2 -W 2 10.0.2.2
         left ping -n -c 3 -i 0.2 -W 2 fd00:2::2
         right ping -n -c 1 -W 2 10.0.1.1
         ip address show sl-left
         $SHADELINE ctl route add 10.9.0.0/16 10.0.2.2
         $SHADELINE ctl show routes
         $SHADELINE ctl reload
         $SHADELINE ctl show interfaces",
    );
    assert_eq!(text.matches(" 0% packet loss").count(), 3, "{text}");
    for part in ["10.0.1.1/24", "10.9.0.0/16", "af_packet"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // No warning: everything that the router sets up is allowed in a namespace of one's own.
    assert!(!text.contains(" WARN ") && !text.contains("ERROR"), "{text}");
    lab.assert_gone(&Default::default());
}

#[test]
fn the_lab_does_not_start_in_a_network_in_use() {
    let Some(lab) = Lab::new() else { return };
    let output = lab.user(&format!(
        "unshare -Urn sh -ec 'ip link add eth9 type veth peer name eth8; ip link set eth9 up; sh {}'",
        lab.script.display()
    ));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && text.contains("unshare -Urn"), "{text}");
}

#[test]
fn af_xdp_says_what_it_lacks_in_a_user_namespace() {
    let Some(lab) = Lab::new() else { return };
    let toml = fs::read_to_string(lab.scratch.join("lab/router.toml")).expect("the file");
    let toml = toml.replace("interface = \"eth1\"", "interface = \"eth1\"\nbackend = \"af_xdp\"");
    let config = lab.scratch.write("xdp.toml", &toml);
    let line = format!("CONFIG={} unshare -Urn sh {} true", config.display(), lab.script.display());
    let output = lab.user(&line);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("CAP_BPF"), "{text}");
}
