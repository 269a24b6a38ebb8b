//! Connections to controllers as those who watch see them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openflow::Version;
use openflow::agent::Settings;
use openflow::message::Role;
use openflow::serve::{Channels, News, SocketEvent};

use crate::plain::Plain;

#[test]
fn controllers_and_their_news() {
    let (sender, events) = std::sync::mpsc::sync_channel::<SocketEvent>(16);
    let sink = move |event| sender.send(event).is_ok();
    let mut channels = Channels::new(Settings::default(), Arc::new(sink));
    // One that nobody listens at, and one that answers.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = closed.local_addr().unwrap().to_string();
    drop(closed);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    channels.add_controller(&silent);
    channels.add_controller(&address);
    let (mut switch, start) = (Plain::new(), Instant::now());
    let mut until = |channels: &mut Channels, done: &dyn Fn(&[News]) -> bool| {
        let mut news = Vec::new();
        while !done(&news) {
            assert!(start.elapsed() < Duration::from_secs(30), "{news:?}");
            channels.tick(start.elapsed());
            if let Ok(event) = events.recv_timeout(Duration::from_millis(20)) {
                channels.event(event, &mut switch, start.elapsed());
            }
            channels.flush(start.elapsed());
            news.extend(channels.take_news());
        }
        news
    };
    let first = until(&mut channels, &|news| !news.is_empty());
    assert!(matches!(&first[..], [News::Unreachable(who, _)] if *who == silent), "{first:?}");
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    // The same reason again is no news.
    let news = until(&mut channels, &|news| !news.is_empty());
    assert_eq!(news, [News::Connected(address.clone(), Version::V13)]);
    let all: Vec<_> = channels.controllers().collect();
    assert_eq!((all[0].version, all[1].version), (None, Some(Version::V13)));
    assert_eq!((all[0].role, all[1].role), (None, Some(Role::Equal)));
    assert!(all[0].last_error.is_some() && all[1].last_error.is_none());
    assert!(all[1].since > Duration::ZERO);
    assert_eq!(all[1].messages, [1, 1]);
    drop(peer);
    let news = until(&mut channels, &|news| !news.is_empty());
    assert!(matches!(&news[..], [News::Lost(who, _)] if *who == address), "{news:?}");
    assert_eq!(channels.controllers().filter(|own| own.version.is_some()).count(), 0);
}

/// Whoever carries out requests makes them visible before their answers leave.
#[test]
fn answers_wait_until_requests_can_be_seen() {
    let (sender, events) = std::sync::mpsc::sync_channel::<SocketEvent>(16);
    let sink = move |event| sender.send(event).is_ok();
    let mut channels = Channels::new(Settings::default(), Arc::new(sink));
    let address = channels.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    let (hello, barrier) = ([4, 0, 0, 8, 0, 0, 0, 1], [4, 20, 0, 8, 0, 0, 0, 2]);
    peer.write_all(&[hello, barrier].concat()).unwrap();
    let (mut switch, start) = (Plain::new(), Instant::now());
    peer.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut byte = [0];
    // The connection, and what it has sent: at once or in pieces.
    while let Ok(event) = events.recv_timeout(Duration::from_millis(500)) {
        channels.event(event, &mut switch, start.elapsed());
    }
    channels.tick(start.elapsed());
    assert!(peer.read(&mut byte).is_err(), "something was sent before it was due");
    channels.flush(start.elapsed());
    peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut answered = Vec::new();
    let wanted = [4, 21, 0, 8, 0, 0, 0, 2];
    while !answered.ends_with(&wanted) {
        if let Ok(event) = events.recv_timeout(Duration::from_millis(20)) {
            channels.event(event, &mut switch, start.elapsed());
        }
        channels.flush(start.elapsed());
        let mut piece = [0; 256];
        let len = peer.read(&mut piece).unwrap();
        answered.extend_from_slice(&piece[..len]);
    }
}
