//! What the steward does for a named-data forwarder: neighbours of faces, and `ctl` about faces and names.

use std::net::IpAddr;
use std::sync::mpsc::Sender;

use control::api::{ErrorKind, ROWS_PER_RESPONSE, Response};
use control::config::parse_prefix;
use control::kernel::{NeighbourState, neighbours};
use control::netlink::Client;
use packet::ndn::NameBuf;

use super::{Steward, now_ns};

/// What who asks others for names is told.
const NO_FORWARDER: &str =
    "this instance has no faces and names: its pipeline has no named-data stages";

/// An answer that says why not.
type Refusal = Box<Response>;

fn refuse(kind: ErrorKind, message: impl ToString) -> Refusal {
    Box::new(Response::error(kind, message))
}

impl Steward {
    /// Linux said something of a neighbour; whether that is all there is to do about it.
    pub(super) fn face_neighbour(
        &mut self,
        interface: usize,
        address: IpAddr,
        known: Option<([u8; 6], NeighbourState)>,
    ) -> bool {
        let Some(named) = &mut self.plane.named else { return false };
        let word = |state| match state {
            NeighbourState::Permanent => Some("permanent"),
            NeighbourState::Reachable => Some("reachable"),
            NeighbourState::Stale => Some("stale"),
            NeighbourState::Delay => Some("delay"),
            NeighbourState::Probe => Some("probe"),
            // Groups: nobody asks for them.
            NeighbourState::NoArp => None,
        };
        let known = known.and_then(|(mac, state)| Some((mac, word(state)?)));
        named.seen(interface as u16, address, known, &self.interfaces);
        self.dirty = true;
        true
    }

    /// Asks Linux for the neighbours of faces, where it is time.
    pub(super) fn ask_for_neighbours(&mut self) {
        let Some(named) = &mut self.plane.named else { return };
        for (interface, address) in named.due_questions(now_ns(), &self.interfaces) {
            let Some(twin) = &self.twins[usize::from(interface)] else { continue };
            let client = match self.client.take() {
                Some(client) => Ok(client),
                None => Client::route(),
            };
            let asked = client.and_then(|mut client| {
                neighbours::use_neighbour(&mut client, twin.ifindex, address)?;
                Ok(client)
            });
            match asked {
                Ok(client) => self.client = Some(client),
                Err(error) => tracing::debug!("{error}"), // it is asked again
            }
        }
    }

    pub(super) fn show_faces(&self) -> Response {
        match &self.plane.named {
            None => *refuse(ErrorKind::Unsupported, NO_FORWARDER),
            Some(named) => {
                let rows = self.statistics.faces(named.face_rows(&self.interfaces));
                Response::Faces { rows }
            }
        }
    }

    pub(super) fn show_names(&self, answer: &Sender<Response>) {
        let Some(named) = &self.plane.named else {
            let _ = answer.send(*refuse(ErrorKind::Unsupported, NO_FORWARDER));
            return;
        };
        let rows = named.name_rows();
        for rows in rows.chunks(ROWS_PER_RESPONSE) {
            if answer.send(Response::Names { rows: rows.to_vec() }).is_err() {
                return;
            }
        }
        if rows.is_empty() {
            let _ = answer.send(Response::Names { rows });
        }
    }

    pub(super) fn name_add(&mut self, prefix: &str, faces: &[String]) -> Response {
        self.try_name_add(prefix, faces).map_or_else(|refusal| *refusal, |()| self.settled())
    }

    fn try_name_add(&mut self, prefix: &str, faces: &[String]) -> Result<(), Refusal> {
        let named = self.plane.named.as_mut();
        let named = named.ok_or_else(|| refuse(ErrorKind::Unsupported, NO_FORWARDER))?;
        let name = prefix_of(prefix)?;
        if faces.is_empty() {
            return Err(refuse(
                ErrorKind::BadRequest,
                format!("{name}: expected at least one face"),
            ));
        }
        let numbers = named.numbers(faces).map_err(|unknown| {
            let names: Vec<_> = named.face_names().collect();
            let expected = match names.as_slice() {
                [] => "the configuration has none".to_owned(),
                names => format!("expected one of {}", names.join(", ")),
            };
            refuse(ErrorKind::NotFound, format!("there is no face `{unknown}`: {expected}"))
        })?;
        if let Some(at) = (1..numbers.len()).find(|at| numbers[..*at].contains(&numbers[*at])) {
            return Err(refuse(
                ErrorKind::BadRequest,
                format!("face `{}` stands twice", faces[at]),
            ));
        }
        if named.has(&name) {
            let message = format!("{name} exists already: use `ctl name del` first");
            return Err(refuse(ErrorKind::Exists, message));
        }
        named.add(&name, &numbers).map_err(|error| refuse(ErrorKind::Full, error))
    }

    pub(super) fn name_del(&mut self, prefix: &str) -> Response {
        self.try_name_del(prefix).map_or_else(|refusal| *refusal, |()| self.settled())
    }

    fn try_name_del(&mut self, prefix: &str) -> Result<(), Refusal> {
        let named = self.plane.named.as_mut();
        let named = named.ok_or_else(|| refuse(ErrorKind::Unsupported, NO_FORWARDER))?;
        let name = prefix_of(prefix)?;
        let message = || format!("{name}: no such route was added with `ctl`");
        named.remove(&name).then_some(()).ok_or_else(|| refuse(ErrorKind::NotFound, message()))
    }

    pub(super) fn name_get(&self, text: &str) -> Response {
        let Some(named) = &self.plane.named else {
            return *refuse(ErrorKind::Unsupported, NO_FORWARDER);
        };
        let name = match NameBuf::from_uri(text.as_bytes()) {
            Ok(name) => name,
            Err(error) => {
                return *refuse(ErrorKind::BadRequest, format!("`{}`: {error}", cut(text)));
            }
        };
        if name.name().is_empty() {
            let message = "`/` is no name that an Interest has: expected at least one component";
            return *refuse(ErrorKind::BadRequest, message);
        }
        match named.name_get(&name) {
            Some(row) => Response::Names { rows: vec![row] },
            None => *refuse(ErrorKind::NotFound, format!("no route for {}", cut(text))),
        }
    }

    /// A change of routes is visible now.
    fn settled(&mut self) -> Response {
        self.dirty = true;
        self.settle();
        Response::Done { message: String::new() }
    }
}

fn prefix_of(text: &str) -> Result<NameBuf, Refusal> {
    parse_prefix(text)
        .map_err(|error| refuse(ErrorKind::BadRequest, format!("`{}`: {error}", cut(text))))
}

/// The beginning of a text, for a message.
fn cut(text: &str) -> String {
    match text.char_indices().nth(48) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
