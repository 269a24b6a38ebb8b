//! `bench ipsec`: the whole gateway in tunnel mode on one core, beside intel-ipsec-mb doing cipher and HMAC alone.
//!
//! ```text
//!  ours   frames in memory ─▶ decode ─▶ esp_in ─▶ route ─▶ esp_out ─▶ rewrite ─▶ ports       every packet from memory
//!  peer   ESP packets in memory ─▶ cipher and HMAC in place                                   as many packets
//! ```
//!
//! A round seals and opens packets of each size with each suite, and has the peer do the same; the rates are payload of
//! the tunnel over the thread's own time. The peer's best of five passes counts. Beside that stand the batches of the crate
//! `crypto` and the peer over 256 packets that a cache holds, what 100,000 associations at random cost against one, and two
//! workers of one association against one.
//!
//! Before time begins, packets of each suite and size go through the gateway: the peer opens what was sealed and has to find
//! the packet and the check value; what the gateway opens has to be the packet that was sealed.

mod gateway;
mod on_device;

use std::io::Write;
use std::process::{Command, Stdio};

use crypto::esp::{self, Inbound, Outbound};

use self::gateway::{Checked, Cipher, Gateway, Load, Way};
use crate::forms::{ratio, thread_seconds};
use crate::limits::up_to;
use crate::{Args, Report, Row, lpm};

/// Suites and sizes with what the issue of the work asks for.
const CASES: [(Cipher, usize, f64); 5] = [
    (Cipher::CtrSha1, 64, 0.7),
    (Cipher::CtrSha1, 1420, 0.9),
    (Cipher::Gcm, 64, 0.5),
    (Cipher::Gcm, 1024, 0.9),
    (Cipher::Gcm, 1420, 1.0),
];
const MANY_AIM: f64 = 0.6;
const TWO_AIM: f64 = 1.7;
/// Packets of a batch of the library, and of the peer's.
const BATCH: usize = 256;
/// Packets that are compared, byte by byte.
const CHECKED: usize = 100;
/// Seconds of a figure of the peer, and of the library alone.
const SECONDS: f64 = 0.25;
const PACKETS_MAX: usize = 1 << 20;
const ASSOCIATIONS_MAX: usize = 1 << 20;

/// What is measured.
#[derive(Debug, Clone, clap::Args)]
pub struct IpsecArgs {
    /// Packets of a measurement, 2 KB each
    #[arg(long, default_value_t = 1 << 17, value_parser = up_to::<PACKETS_MAX>)]
    pub packets: usize,
    /// Associations of the case with many
    #[arg(long, default_value_t = 100_000, value_parser = up_to::<ASSOCIATIONS_MAX>)]
    pub associations: usize,
    /// Measure only cases whose name has this in it, such as "1420 bytes, sealing", and no others
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Measure the gateway with this device instead, from queue to queue: auto, opencl, opencl:N, cuda or cuda:N
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<device::Backend>,
    /// Numbers of workers beside the device
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,4,8,12",
        requires = "backend"
    )]
    pub workers: Vec<usize>,
}

/// The name of a case, without what is measured.
fn name_of(cipher: Cipher, size: usize, way: Way) -> String {
    format!("{}, {size} bytes, {}", cipher.name(), way.name())
}

pub(crate) fn run(args: &Args, options: &IpsecArgs) -> Result<Report, String> {
    let packets = (options.packets / (2 * BATCH)).max(1) * 2 * BATCH;
    let data = format!(
        "tunnels over IPv4, {packets} distinct packets, each once, cells out of cache; sizes are those of inner packets"
    );
    let gateway = Gateway::new(packets)?;
    let mut report = Report::new("ipsec", data);
    if let Some(backend) = options.backend {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        // One core is for the master of the device.
        let (workers, too_many): (Vec<usize>, Vec<usize>) =
            options.workers.iter().partition(|count| (1..most.max(2)).contains(*count));
        for count in too_many {
            let row = Row::new(format!("on a device, {count} workers"), "Gbit/s", Vec::new());
            report.rows.push(row.note(format!("not measured: {most} cores, one for the device")));
        }
        on_device::run(args, &gateway, backend, &workers, packets, &mut report)?;
        return Ok(report);
    }
    for (cipher, size, aim) in CASES {
        check(&gateway, cipher, size)?;
        for way in Way::ALL {
            let name = name_of(cipher, size, way);
            if format!("{name}, gateway").contains(&options.only) {
                beside_peer(args, &gateway, (cipher, size, way, aim), packets, &mut report)?;
            }
        }
    }
    let is_wanted = |cipher, size, way, what: &str| {
        format!("{}, {what}", name_of(cipher, size, way)).contains(&options.only)
    };
    for way in Way::ALL {
        for size in [64, 1420] {
            if is_wanted(Cipher::CtrSha1, size, way, "associations") {
                many(args, &gateway, (way, size, packets), options.associations, &mut report)?;
            }
        }
    }
    for way in Way::ALL {
        for (cipher, size) in [(Cipher::CtrSha1, 64), (Cipher::CtrSha1, 1420), (Cipher::Gcm, 1420)]
        {
            if is_wanted(cipher, size, way, "workers") {
                two_cores(args, &gateway, (cipher, way, size, packets), &mut report)?;
            }
        }
    }
    Ok(report)
}

/// Megabytes of payload a second.
fn megabytes(load: &Load<'_>, rate: f64) -> f64 {
    rate * load.bytes() as f64 / load.packets as f64
}

fn beside_peer(
    args: &Args,
    gateway: &Gateway,
    (cipher, size, way, aim): (Cipher, usize, Way, f64),
    packets: usize,
    report: &mut Report,
) -> Result<(), String> {
    let load = Load { cipher, way, associations: 1, packets, sizes: &[size] };
    let [mut ours, mut peer, mut alone, mut in_cache] = [const { Vec::new() }; 4];
    for _ in 0..args.rounds.max(1) {
        ours.push(megabytes(&load, gateway.measure(&load, 1)?));
        peer.extend(ipsec_mb(cipher, way, size, packets)?);
        alone.push(library(cipher, way, size)?);
        in_cache.extend(ipsec_mb(cipher, way, size, BATCH)?);
    }
    let name = |what: &str| format!("{}, {what}", name_of(cipher, size, way));
    let mpps = crate::report::median(&ours) / size as f64;
    report.rows.extend([
        Row::new(name("gateway"), "MB/s", ours.clone()).note(format!("{mpps:.2} Mpps")),
        Row::new(name("crypto, in cache"), "MB/s", alone.clone()),
    ]);
    if peer.len() == ours.len() {
        report.rows.extend([
            Row::new(name("ipsec-mb"), "MB/s", peer.clone()),
            Row::new(name("ipsec-mb, in cache"), "MB/s", in_cache.clone()),
            ratio(name("gateway / ipsec-mb"), &ours, &peer).at_least(aim),
            ratio(name("crypto / ipsec-mb, in cache"), &alone, &in_cache),
        ]);
    } else {
        let note = "not compared: `cargo xtask peers` builds ipsec_mb_peer, with libipsec-mb-dev";
        report.rows.push(Row::new(name("ipsec-mb"), "MB/s", Vec::new()).note(note));
    }
    Ok(())
}

fn many(
    args: &Args,
    gateway: &Gateway,
    (way, size, packets): (Way, usize, usize),
    count: usize,
    report: &mut Report,
) -> Result<(), String> {
    let cipher = Cipher::CtrSha1;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds.max(1) {
        for (associations, rates) in [1, count].into_iter().zip(&mut rates) {
            let load = Load { cipher, way, associations, packets, sizes: &[size] };
            rates.push(gateway.measure(&load, 1)?);
        }
    }
    let name = |what: &str| format!("{}, {what}", name_of(cipher, size, way));
    let [one, all] = &rates;
    report.rows.extend([
        Row::new(name("1 association"), "Mpps", one.clone()),
        Row::new(name(&format!("{count} associations")), "Mpps", all.clone()),
        ratio(name(&format!("{count} associations / 1")), all, one).at_least(MANY_AIM),
    ]);
    Ok(())
}

fn two_cores(
    args: &Args,
    gateway: &Gateway,
    (cipher, way, size, packets): (Cipher, Way, usize, usize),
    report: &mut Report,
) -> Result<(), String> {
    let name = |what: &str| format!("{}, {what}", name_of(cipher, size, way));
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        let row = Row::new(name("2 workers, 1 association"), "Mpps", Vec::new());
        report.rows.push(row.note("not measured: one core"));
        return Ok(());
    }
    let load = Load { cipher, way, associations: 1, packets, sizes: &[size] };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds.max(1) {
        for (workers, rates) in [1, 2].into_iter().zip(&mut rates) {
            rates.push(gateway.measure(&load, workers)?);
        }
    }
    let [one, two] = &rates;
    report.rows.extend([
        Row::new(name("2 workers, 1 association"), "Mpps", two.clone()),
        ratio(name("2 workers / 1"), two, one).at_least(TWO_AIM),
    ]);
    Ok(())
}

/// Megabytes of payload a second of the crate's batches over packets of one association, in a cache.
fn library(cipher: Cipher, way: Way, size: usize) -> Result<f64, String> {
    let error = |error: esp::AssociationError| error.to_string();
    let sending = Outbound::new(cipher.key(0)?, 0x1000, false).map_err(error)?;
    // Without a window, so that the same packets may come again.
    let receiving = Inbound::new(cipher.key(0)?, 0x1000, false, 0).map_err(error)?;
    let front = esp::front_len(sending.suite());
    let len = front + size + esp::back_len(sending.suite(), size);
    let mut buffers = vec![vec![1; len]; BATCH];
    let seal = |buffers: &mut [Vec<u8>]| {
        let numbers = sending.take(BATCH as u64);
        let seals = numbers.zip(buffers.iter_mut());
        let mut seals: Vec<_> =
            seals.map(|(number, own)| number.seal(own, front..front + size, 4, 0)).collect();
        esp::seal_batch(&mut seals);
        seals.iter().all(|own| own.result().is_ok())
    };
    // Opened packets are no longer genuine: what is sealed lies ready.
    seal(&mut buffers);
    let sealed = buffers.clone();
    let (mut spent, mut batches) = (0.0, 0);
    while spent < SECONDS {
        for (buffer, sealed) in buffers.iter_mut().zip(&sealed) {
            buffer.copy_from_slice(sealed);
        }
        let begun = thread_seconds();
        let is_right = match way {
            Way::Seal => seal(&mut buffers),
            Way::Open => {
                let mut opens: Vec<_> = buffers.iter_mut().map(|own| receiving.open(own)).collect();
                esp::open_batch(&mut opens);
                opens.iter().all(|own| own.result().is_ok())
            }
        };
        spent += thread_seconds() - begun;
        batches += 1;
        if !is_right {
            return Err(format!("{}: a packet is refused", cipher.name()));
        }
    }
    Ok(f64::from(batches) * (BATCH * size) as f64 / spent / 1e6)
}

fn peer_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::CtrSha1 => "ctr-sha1",
        Cipher::Gcm => "gcm",
    }
}

/// Megabytes a second of intel-ipsec-mb over so many packets; `None` where it is not built.
fn ipsec_mb(cipher: Cipher, way: Way, size: usize, packets: usize) -> Result<Option<f64>, String> {
    let Some(binary) = lpm::binary("ipsec_mb_peer") else { return Ok(None) };
    let numbers = [size.to_string(), "1".into(), SECONDS.to_string(), packets.to_string()];
    let mut command = Command::new(binary);
    command.arg(peer_name(cipher)).args(numbers);
    if way == Way::Open {
        command.arg("open");
    }
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.split(' ').next().and_then(|rate| rate.parse().ok());
    match rate {
        Some(rate) if output.status.success() => Ok(Some(rate)),
        _ => Err(format!("ipsec_mb_peer: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Whether what the gateway seals is what the peer expects, and what it opens is what was sealed.
fn check(gateway: &Gateway, cipher: Cipher, size: usize) -> Result<(), String> {
    let name = format!("{}, {size} bytes", cipher.name());
    // A few associations, and so many that they are loaded ahead.
    for (way, associations) in Way::ALL.into_iter().flat_map(|way| [(way, 5), (way, CHECKED)]) {
        let load = Load { cipher, way, associations, packets: CHECKED, sizes: &[size] };
        let Checked { sealed, inner, expected } = gateway.frames(&load)?;
        if way == Way::Open && inner != expected {
            return Err(format!("{name}: an opened packet is not what was sealed"));
        }
        let Some(answers) = opened_by_peer(cipher, &sealed)? else { continue };
        for ((sealed, expected), (text, tag)) in sealed.iter().zip(&expected).zip(&answers) {
            // What was sealed before the gateway had it has a TTL that is one higher.
            let mut inner = text.get(..size).unwrap_or_default().to_vec();
            if way == Way::Open {
                packet::checksum::ipv4_decrement_ttl(&mut inner);
            }
            if inner != *expected || !sealed.ends_with(tag) || tag.is_empty() {
                return Err(format!("{name}, {}: not what intel-ipsec-mb expects", way.name()));
            }
        }
        if answers.len() != sealed.len() {
            return Err(format!("{name}: intel-ipsec-mb has {} answers", answers.len()));
        }
    }
    Ok(())
}

/// Two texts that belong together.
type Pair = (Vec<u8>, Vec<u8>);

/// Text and check value of ESP packets by the peer; `None` where it is not built.
fn opened_by_peer(cipher: Cipher, sealed: &[Vec<u8>]) -> Result<Option<Vec<Pair>>, String> {
    let Some(binary) = lpm::binary("ipsec_mb_peer") else { return Ok(None) };
    let mut command = Command::new(binary);
    command.args(["check", peer_name(cipher)]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut lines = String::new();
    for packet in sealed {
        packet.iter().for_each(|byte| lines.push_str(&format!("{byte:02x}")));
        lines.push('\n');
    }
    // It answers while it reads: a thread writes.
    let input = child.stdin.take();
    let writer = std::thread::spawn(move || match input {
        Some(mut input) => input.write_all(lines.as_bytes()).is_ok(),
        None => false,
    });
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if !writer.join().unwrap_or(false) || !output.status.success() {
        return Err("ipsec_mb_peer does not open packets".to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let bytes = |text: &str| -> Option<Vec<u8>> {
        let pair = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
        (0..text.len()).step_by(2).map(pair).collect()
    };
    let answer = |line: &str| {
        let (text, tag) = line.split_once(' ')?;
        Some((bytes(text)?, bytes(tag)?))
    };
    let answers: Option<Vec<_>> = text.lines().map(answer).collect();
    answers.map(Some).ok_or_else(|| "ipsec_mb_peer has an answer of its own".to_owned())
}

/// Sizes of PacketShader's figures: frames, without what Ethernet adds.
const FRAMES: [usize; 6] = [64, 128, 256, 512, 1024, 1514];
/// The usual simple mix of frames: seven short ones, four of 570 bytes, one long one.
const MIX: [usize; 12] = [64, 570, 64, 64, 570, 64, 1514, 64, 570, 64, 570, 64];

/// PacketShader, Figure 11(d): input throughput by size of frames.
pub(crate) fn packetshader(args: &Args, packets: usize) -> Result<Report, String> {
    const LINK: usize = packet::ethernet::HEADER_LEN;
    let packets = (packets / BATCH).max(1) * BATCH;
    let data = format!(
        "PacketShader, Figure 11(d): gateway with AES-128-CTR + HMAC-SHA1 in tunnel mode on one core, CPU only; {packets} distinct \
         packets from memory; input with 24 bytes a frame for Ethernet; sizes are those of plain frames"
    );
    let gateway = Gateway::new(packets)?;
    let mut report = Report::new("paper", data);
    let sets: Vec<(String, Option<usize>, Vec<usize>)> = FRAMES
        .iter()
        .map(|size| (format!("{size} bytes"), Some(*size), vec![size - LINK]))
        .chain([("IMIX".to_owned(), None, MIX.map(|size| size - LINK).to_vec())])
        .collect();
    let mut rates = vec![[Vec::new(), Vec::new()]; sets.len()];
    for _ in 0..args.rounds.max(1) {
        for ((_, _, sizes), rates) in sets.iter().zip(&mut rates) {
            for (way, rates) in Way::ALL.into_iter().zip(rates) {
                let load = Load { cipher: Cipher::CtrSha1, way, associations: 1, packets, sizes };
                let bits = load.received_bytes() as f64 * 8.0 / packets as f64;
                rates.push(gateway.measure(&load, 1)? * bits / 1e3);
            }
        }
    }
    for ((name, size, _), rates) in sets.iter().zip(rates) {
        for (way, rates) in Way::ALL.into_iter().zip(rates) {
            let row = Row::new(format!("{name}, {}", way.name()), "Gbit/s", rates);
            report.rows.push(match size {
                Some(_) => row.curve("throughput", way.name(), *size).over("bytes of a frame"),
                None => row,
            });
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::gateway::Shared;
    use super::*;

    /// An association that several workers receive: each packet leaves once, and in the order in which its worker received it,
    /// whichever worker opens or seals it. Fewer packets than the window has numbers: workers are not in step.
    #[test]
    fn several_workers_or_one_have_the_packets_of_an_association() {
        use control::config::SaWorkers::{Any, Auto, One};
        const PACKETS: usize = 2048;
        let gateway = Gateway::new(PACKETS).unwrap();
        for (way, workers) in Way::ALL.into_iter().flat_map(|way| [1, 2, 4].map(|own| (way, own))) {
            // As control gives associations workers, and one that there is not.
            let last = workers as u16 - 1;
            let cases = [(Any, None), (One, None), (Auto, Some(last)), (Auto, Some(last + 1))];
            for (who, given) in cases {
                let load = Load {
                    cipher: Cipher::Gcm,
                    way,
                    associations: 1,
                    packets: PACKETS,
                    sizes: &[64, 90],
                };
                let Shared { left, numbers, done, owner } =
                    gateway.shared(&load, workers, (who, given)).unwrap();
                let case = format!("{way:?}, {workers} workers, {who:?}: {done:?}, {owner:?}");
                let mut all = left.clone();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..PACKETS), "{case}");
                for worker in 0..workers {
                    let own = left.iter().filter(|at| *at / 256 % workers == worker);
                    assert!(own.is_sorted(), "{case}");
                }
                assert_eq!(done.iter().sum::<u64>(), PACKETS as u64, "{case}");
                // No number comes twice, and one worker takes them as its packets leave.
                if way == Way::Seal {
                    let is_one = who != Any && given.is_none_or(|own| own == last);
                    assert!(!is_one || numbers.is_sorted(), "{case}");
                    let mut numbers = numbers;
                    numbers.sort_unstable();
                    assert!(numbers.into_iter().eq(1..=PACKETS as u32), "{case}");
                }
                match owner.map(usize::from).filter(|owner| *owner < workers) {
                    None => {
                        assert!(who != One && owner == given, "{case}");
                        assert!(done.iter().all(|own| *own > 0), "{case}");
                    }
                    Some(owner) => assert_eq!(done[owner], PACKETS as u64, "{case}"),
                }
            }
        }
    }

    /// All cases with few packets: what is sealed is opened again, whoever looks.
    #[test]
    fn packets_of_every_case_are_right() {
        let gateway = Gateway::new(2048).unwrap();
        for (cipher, size, _) in CASES {
            check(&gateway, cipher, size).unwrap();
        }
        for way in Way::ALL {
            let load = Load {
                cipher: Cipher::Gcm,
                way,
                associations: 20,
                packets: 2048,
                sizes: &[64, 90],
            };
            assert!(gateway.measure(&load, 1).unwrap() > 0.0);
            let load = Load { associations: 1, ..load };
            assert!(gateway.measure(&load, 2).unwrap() > 0.0);
        }
    }
}
