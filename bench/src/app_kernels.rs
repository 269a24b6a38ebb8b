//! Kernels of applications by themselves: tables of OpenFlow, ESP, the stage `cipher`, a search for literals. Packets, tables
//! and answers stay on the device; one job is launched again and again. Answers are compared with the CPU's.

use apps::cipher::columns::CipherColumns as Cipher;
use apps::cipher::keys::Master;
use apps::cipher::settings::{Algorithm, Direction as Way, Keys, Settings};
use apps::ipsec::device::keys::{KEY_WORDS, write_record};
use apps::ipsec::device::{EspColumns as Esp, kernels as esp};
use apps::openflow::columns::{KEYS, KeyColumns, PATHS, columns_of, path_of};
use apps::openflow::kernels::FLOWS;
use automata::{Automaton, Pattern, Patterns};
use chunk::{Columns, Declaration, Verdict};
use crypto::esp::seal_batch;
use crypto::modes::{Mode, RawKey, Text, encrypt_batch};
use crypto::{Authentication, Encryption, Icv, Key, KeySize, Secret, SecretWords, Suite};
use device::accelerator::Step;
use device::driver::{Arguments, Driver, Memory, Program};
use engine::KernelStep;
use flowtable::Key as FlowKey;
use flowtable::headers::read;
use flowtable::walk::{Path, Room, STEPS, flags_of, walk};
use ipsec::{Association, Direction, Parameters};
use kernels::job::JobBytes;
use kernels::{KernelFile, WalkColumns as Walk, files};

use crate::on_device::{PATIENCE, program_of, send_image, text, timed};
use crate::{Report, Row, openflow, patterns};

/// Packets of a job, which a GPU gets more of: it has room for 270,000 items at once.
pub(crate) fn packets(driver: &dyn Driver) -> usize {
    if driver.info().is_gpu { 1 << 17 } else { 1 << 12 }
}

/// Packets of a job whose payload the device does not get.
fn keys_of_packets(driver: &dyn Driver) -> usize {
    if driver.info().is_gpu { 1 << 20 } else { 1 << 16 }
}

/// Jobs of a round.
const JOBS: usize = 8;
/// Bytes of payload.
const SIZES: [usize; 2] = [64, 1420];
/// Ethernet, IPv4 and UDP.
const FRONT: usize = 42;
/// Literals of the search.
const LITERALS: usize = 10_000;

/// A job of an application's kernels, with tables.
pub(crate) struct Alone<'a> {
    pub(crate) program: Program,
    pub(crate) steps: &'a [Step],
    pub(crate) job: JobBytes,
    pub(crate) rows: usize,
    /// Frames that begin at multiples of 16 bytes.
    pub(crate) payload: Vec<u8>,
    /// State, of which there is none in most.
    pub(crate) state: Vec<u8>,
    pub(crate) regions: &'a [&'a [u32]],
}

/// What became of it.
pub(crate) struct Ran {
    /// Seconds of a job, by round.
    pub(crate) seconds: Vec<f64>,
    /// Whose clock it was.
    pub(crate) clock: &'static str,
    /// After the first time.
    pub(crate) job: JobBytes,
    pub(crate) payload: Vec<u8>,
    pub(crate) state: Vec<u8>,
}

impl Alone<'_> {
    /// Runs the job once, and then so many times a round that it takes a while.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn run(mut self, driver: &mut dyn Driver, rounds: usize) -> Result<Ran, String> {
        let names: Vec<&str> = self.steps.iter().map(|step| &*step.kernel).collect();
        let kernels = driver.build(&self.program, &names).map_err(text)?;
        let queue = driver.queue().map_err(text)?;
        let tables = send_image(driver, self.regions)?;
        let mut send = |bytes: &[u8]| -> Result<Memory, String> {
            let memory = driver.allocate(bytes.len().max(16)).map_err(text)?;
            let parts = [(bytes, 0)];
            device::upload_all(driver, queue, memory, &parts, PATIENCE).map_err(text)?;
            Ok(memory)
        };
        let (arena, payload) = (send(self.job.bytes())?, send(&self.payload)?);
        let state = send(&self.state)?;
        let (rows, at_once) = (self.rows, driver.info().groups_at_once());
        let launch = |(step, kernel): (&Step, _)| {
            let job = step.job.unwrap_or_default();
            let arguments = Arguments { arena, payload, tables, state, job };
            (kernel, step.shape(rows, self.payload.len(), at_once), arguments)
        };
        let once: Vec<_> = self.steps.iter().zip(kernels).map(launch).collect();
        timed(driver, queue, &once)?;
        for (memory, bytes) in [
            (arena, self.job.bytes_mut()),
            (payload, &mut self.payload[..]),
            (state, &mut self.state[..]),
        ] {
            device::download_all(driver, queue, memory, 0, bytes, PATIENCE).map_err(text)?;
        }
        let all = once.repeat(JOBS);
        let (mut seconds, mut clock) = (Vec::new(), "");
        for _ in 0..rounds.max(1) {
            let (time, by) = timed(driver, queue, &all)?;
            clock = by;
            seconds.push(time.as_secs_f64() / JOBS as f64);
        }
        [arena, payload, tables, state].into_iter().for_each(|memory| driver.free(memory));
        Ok(Ran { seconds, clock, job: self.job, payload: self.payload, state: self.state })
    }
}

impl Ran {
    /// A row of how many millions, or gigabits, there were a second; on a GPU with an aim.
    pub(crate) fn row(&self, name: String, unit: &str, each: f64, aim: Option<f64>) -> Row {
        let row = Row::new(name, unit, self.seconds.iter().map(|time| each / time).collect());
        let row = if let Some(aim) = aim { row.at_least(aim) } else { row };
        row.note(self.clock)
    }
}

fn program(file: &'static KernelFile, columns: Declaration) -> Program {
    program_of(file.name, &[file], columns, "")
}

fn literals_program() -> Program {
    program_of("literals", &[&files::LITERALS, &files::AREAS], Walk::COLUMNS, "")
}

/// Their programs.
pub(crate) fn programs() -> Vec<Program> {
    let own = [
        (&FLOWS, KeyColumns::COLUMNS),
        (&esp::ESP, Esp::COLUMNS),
        (&apps::cipher::kernels::SECRETS, Cipher::COLUMNS),
    ];
    let own = own.into_iter().map(|(file, columns)| program(file, columns));
    own.chain([literals_program()]).collect()
}

/// All of them.
///
/// # Errors
/// The device's.
pub(crate) fn run(
    driver: &mut dyn Driver,
    rounds: usize,
    report: &mut Report,
) -> Result<(), String> {
    flows(driver, rounds, report)?;
    for suite in suites()? {
        for size in SIZES {
            sealed(driver, rounds, suite, size, report)?;
        }
    }
    for size in SIZES {
        encrypted(driver, rounds, size, report)?;
    }
    literals(driver, rounds, report)
}

/// The tables of an OpenFlow switch (PacketShader §6.2.3), of 32,768 exact flows and 32 wildcards.
fn flows(driver: &mut dyn Driver, rounds: usize, report: &mut Report) -> Result<(), String> {
    let (tables, frames) = openflow::on_device(keys_of_packets(driver))?;
    let mut job = JobBytes::new(KeyColumns::COLUMNS, frames.len());
    let (mut keys, mut flags) = (Vec::new(), Vec::new());
    for (row, frame) in frames.iter().enumerate() {
        let mut key = FlowKey::default();
        let headers = read(frame, frame.len(), 1, &mut key);
        let own = flags_of(&headers);
        job.put(KeyColumns::VERDICT, row, Verdict::NEXT.0);
        let columns = KEYS.iter().zip(columns_of(&key, own));
        columns.for_each(|(column, value)| job.put(*column, row, value));
        keys.push(key);
        flags.push(own);
    }
    let mut paths = vec![Path([0; STEPS]); frames.len()];
    walk(&tables, &mut keys, &mut flags, &mut paths, &mut Room::default());
    let mut expected = job.clone();
    for (row, path) in paths.iter().enumerate() {
        let columns = PATHS.iter().zip(path_of(path));
        columns.for_each(|(column, value)| expected.put(*column, row, value));
    }
    let regions = flowtable::device::regions(&tables);
    let regions: Vec<&[u32]> = regions.iter().map(|region| &**region).collect();
    let steps = [Step::rows("flow_tables", 128).with_job(0)];
    let program = program(&FLOWS, KeyColumns::COLUMNS);
    let (rows, payload) = (frames.len(), Vec::new());
    let own =
        Alone { program, steps: &steps, job, rows, payload, state: Vec::new(), regions: &regions };
    let ran = own.run(driver, rounds)?;
    if ran.job != expected {
        report.wrong.push("tables of OpenFlow: other paths than the CPU's".into());
    }
    let aim = driver.info().is_gpu.then_some(200.0);
    let name = "tables of OpenFlow, 32,768 exact flows and 32 wildcards, kernel alone".to_owned();
    report.rows.push(ran.row(name, "Mpps", frames.len() as f64 / 1e6, aim));
    Ok(())
}

/// With the aim of a GPU for 1,420 bytes, Gbit/s.
type Aimed = (&'static str, Suite, Option<f64>);

fn suites() -> Result<[Aimed; 3], String> {
    use Authentication::{HmacSha1_96, HmacSha256_128, None as Nothing};
    let bits = KeySize::Bits128;
    let of = |name, encryption, authentication, aim| {
        let suite = Suite::new(encryption, authentication).map_err(text)?;
        Ok::<_, String>((name, suite, aim))
    };
    Ok([
        of("AES-128-CTR + HMAC-SHA1", Encryption::AesCtr(bits), HmacSha1_96, Some(400.0))?,
        of("AES-128-GCM", Encryption::AesGcm(bits, Icv::Bytes16), Nothing, None)?,
        of("AES-128-CBC + HMAC-SHA-256", Encryption::AesCbc(bits), HmacSha256_128, None)?,
    ])
}

fn association(suite: Suite) -> Result<Association, String> {
    let of = |len: usize| Secret::new((0..len).map(|byte| (7 * byte) as u8 ^ 0x6b).collect());
    let keys = (of(suite.encryption_key_len()), of(suite.authentication_key_len()));
    let key = Key::new(suite, &keys.0, &keys.1).map_err(text)?;
    let ends = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let parameters = Parameters::new(Direction::Out, 0x1001, ends, 1);
    Association::new(parameters, key, 0).map_err(text)
}

/// Packets of one association, as workers make them, sealed.
fn sealed(
    driver: &mut dyn Driver,
    rounds: usize,
    (name, suite, aim): Aimed,
    size: usize,
    report: &mut Report,
) -> Result<(), String> {
    let own = association(suite)?;
    let sealer = own.sealer().ok_or("an association without a key")?;
    let packets = packets(driver);
    let mut job = JobBytes::new(Esp::COLUMNS, packets);
    let (mut payload, mut expected) = (Vec::new(), Vec::new());
    for (row, number) in sealer.take(packets as u64).enumerate() {
        let mut buffer = vec![0; FRONT + 24 + size + 64];
        let inside = FRONT + 24..FRONT + 24 + size;
        buffer[inside.clone()].fill(row as u8);
        let prepared = number.prepare(&mut buffer, inside, 4, 0).map_err(text)?;
        let frame = &mut buffer[prepared.packet.start - FRONT..prepared.packet.end];
        job.put(Esp::ESP_FRAME_AT, row, payload.len() as u32);
        job.put(Esp::ESP_FRAME_LEN, row, frame.len() as u32);
        job.put(Esp::ESP_KEY, row, 1u32);
        job.put(Esp::ESP_AT, row, FRONT as u16);
        job.put(Esp::ESP_LEN, row, (frame.len() - FRONT) as u32);
        job.put(Esp::ESP_HIGH, row, prepared.high);
        append(&mut payload, frame);
        seal_batch(&mut [sealer.encrypt(&mut frame[FRONT..], prepared.high)]);
        append(&mut expected, frame);
    }
    job.add_areas(&[4 * esp::RECORD_WORDS * packets]);
    let mut words = SecretWords::zeros(KEY_WORDS);
    write_record(&mut words, 0, Some(&own));
    let form = esp::form(Direction::Out, 0);
    let program = program(&esp::ESP, Esp::COLUMNS);
    let steps = kernels(form.steps);
    let own = Alone {
        program,
        steps: &steps,
        job,
        rows: packets,
        payload,
        state: Vec::new(),
        regions: &[words.expose()],
    };
    let ran = own.run(driver, rounds)?;
    if ran.payload != expected {
        report.wrong.push(format!("ESP, {name}, {size} bytes: other packets than the CPU's"));
    }
    let aim = aim.filter(|_| driver.info().is_gpu && size == SIZES[1]);
    let name = format!("ESP with {name}, {size} bytes sealed, kernels alone");
    report.rows.push(ran.row(name, "Gbit/s", (8 * size * packets) as f64 / 1e9, aim));
    Ok(())
}

/// Payload of UDP, encrypted with AES-128 in counter mode by the stage `cipher`.
fn encrypted(
    driver: &mut dyn Driver,
    rounds: usize,
    size: usize,
    report: &mut Report,
) -> Result<(), String> {
    let settings =
        Settings { algorithm: Algorithm::Ctr128, keys: Keys::Static, ..Settings::default() };
    let secret = || Secret::new((0..16).collect());
    let master = Master::new(&settings, &secret())?;
    let front = settings.iv_len();
    let packets = packets(driver);
    let mut job = JobBytes::new(Cipher::COLUMNS, packets);
    let (mut payload, mut places) = (Vec::new(), Vec::new());
    for row in 0..packets {
        let mut frame = vec![0; FRONT + front + size];
        (frame[12], frame[14], frame[23]) = (8, 0x45, 17);
        frame[26..30].copy_from_slice(&(row as u32).to_be_bytes());
        frame[FRONT + front..].fill(row as u8);
        places.push(payload.len());
        job.put(Cipher::CIPHER_FRAME_AT, row, payload.len() as u32);
        job.put(Cipher::CIPHER_FRAME_LEN, row, frame.len() as u32);
        job.put(Cipher::CIPHER_AT, row, FRONT as u16);
        job.put(Cipher::CIPHER_L3, row, 14u8);
        job.put(Cipher::CIPHER_L4, row, 34u16);
        job.put(Cipher::CIPHER_PROTOCOL, row, 17u8);
        job.put(Cipher::CIPHER_LEN, row, size as u32);
        append(&mut payload, &frame);
    }
    job.add_areas(&[4 * apps::cipher::kernels::RECORD_WORDS * packets]);
    let before = payload.clone();
    let form = apps::cipher::kernels::form(Mode::Ctr, Way::Encrypt, settings.iv, 0);
    let program = program(&apps::cipher::kernels::SECRETS, Cipher::COLUMNS);
    let steps = kernels(form.steps);
    let own = Alone {
        program,
        steps: &steps,
        job,
        rows: packets,
        payload,
        state: Vec::new(),
        regions: &[master.words()],
    };
    let ran = own.run(driver, rounds)?;
    let key = RawKey::new(Mode::Ctr, &secret()).map_err(text)?;
    let is_wrong = |at: &usize| {
        let whole = *at + FRONT..*at + FRONT + front + size;
        let (vector, found) = ran.payload[whole.clone()].split_at(front);
        let mut bytes = before[whole][front..].to_vec();
        let mut iv = [0; 16];
        iv.copy_from_slice(vector);
        encrypt_batch(&mut [Text::new(&key, iv, &mut bytes, size)]);
        bytes != found
    };
    if places.iter().any(is_wrong) {
        report.wrong.push(format!("AES-128-CTR, {size} bytes: other texts than the CPU's"));
    }
    let aim = (driver.info().is_gpu && size == SIZES[1]).then_some(500.0);
    let name = format!("payload of {size} bytes encrypted with AES-128-CTR, kernels alone");
    report.rows.push(ran.row(name, "Gbit/s", (8 * size * packets) as f64 / 1e9, aim));
    Ok(())
}

/// 10,000 literals of 4 to 16 bytes in printable bytes: matches are counted, and the state behind each packet is kept.
fn literals(driver: &mut dyn Driver, rounds: usize, report: &mut Report) -> Result<(), String> {
    let mut all = Patterns::default();
    for literal in patterns::random_literals(LITERALS) {
        all.insert(Pattern::new(&literal)).map_err(text)?;
    }
    let automaton = Automaton::new(&all).map_err(text)?;
    let size = SIZES[1];
    let mut random = crate::tables::Random(5);
    let (mut payload, mut wanted) = (Vec::new(), Vec::new());
    let packets = packets(driver);
    let mut job = JobBytes::new(Walk::COLUMNS, packets);
    for row in 0..packets {
        let bytes: Vec<u8> = (0..size).map(|_| patterns::printable(&mut random)).collect();
        job.put(Walk::PAYLOAD_AT, row, payload.len() as u32);
        job.put(Walk::PAYLOAD_LEN, row, size as u32);
        job.put(Walk::WALK_FROM, row, automaton.start().to_bits());
        wanted.push(automaton.scan(automaton.start(), &bytes, 0, |_| {}).to_bits());
        append(&mut payload, &bytes);
    }
    job.add_areas(&[4 * (5 + packets), 4]);
    let steps = [Step::rows("literals_count", 128).with_job(0)];
    let program = literals_program();
    let own = Alone {
        program,
        steps: &steps,
        job,
        rows: packets,
        payload,
        state: Vec::new(),
        regions: &[automaton.words()],
    };
    let ran = own.run(driver, rounds)?;
    if wanted
        .iter()
        .enumerate()
        .any(|(row, state)| ran.job.get::<u64>(Walk::WALK_TO, row) != *state)
    {
        report.wrong.push("literals: other states than the CPU's".into());
    }
    let aim = driver.info().is_gpu.then_some(200.0);
    let name = format!("{LITERALS} literals in payload of {size} bytes, kernel alone");
    report.rows.push(ran.row(name, "Gbit/s", (8 * size * packets) as f64 / 1e9, aim));
    Ok(())
}

/// The kernels of a form.
fn kernels(steps: Vec<KernelStep>) -> Vec<Step> {
    let kernel = |step| match step {
        KernelStep::Kernel(step) => Some(step),
        _ => None,
    };
    steps.into_iter().filter_map(kernel).collect()
}

/// A frame behind the others, at a multiple of 16 bytes.
pub(crate) fn append(payload: &mut Vec<u8>, frame: &[u8]) {
    payload.extend_from_slice(frame);
    payload.resize(payload.len().next_multiple_of(16), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel answers as the CPU does.
    #[test]
    fn answers_are_the_cpus() {
        if !testkit::require_opencl() {
            return;
        }
        let mut driver = device::probe::open(device::driver::Api::OpenCl, 0).unwrap();
        let mut report = Report::new("device", String::new());
        run(&mut *driver, 1, &mut report).unwrap();
        assert_eq!(report.wrong, [""; 0]);
        assert_eq!(report.rows.len(), 1 + 3 * 2 + 2 + 1);
    }
}
