//! SMTP and FTP.

use applayer::{AnomalyKind, Buffer, Data, FileState};
use l7proto::Protocol;

use crate::recorder::{S, Step, c, s, stream};

pub const MAIL: &[u8] = b"From: <a@example.com>\r\nTo: b@example.com,\r\n c@example.com\r\nSubject: two parts\r\n\
    Received: from x\r\nReceived: from y\r\nMIME-Version: 1.0\r\n\
    Content-Type: multipart/mixed; boundary=\"==b==\"\r\n\r\npreamble\r\n--==b==\r\n\
    Content-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
    see http://exam=\r\nple.com/x=3Dy now\r\n..dot\r\n--==b==\r\n\
    Content-Type: application/octet-stream; name=\"a.bin\"\r\n\
    Content-Disposition: attachment; filename=\"a.bin\"\r\nContent-Transfer-Encoding: base64\r\n\r\n\
    AAECAwQFBgcICQoLDA0ODw==\r\n--==b==--\r\nepilogue\r\n.\r\n";

#[test]
fn a_mail_with_an_attachment() {
    let r = stream(
        25,
        &[
            s(b"220 mail ESMTP\r\n"),
            c(b"EHLO me\r\n"),
            s(b"250-mail\r\n250 PIPELINING\r\n"),
            c(b"MAIL FROM:<a@example.com> SIZE=1\r\nRCPT TO:<b@example.com>\r\nRCPT TO:<c@example.com>\r\nDATA\r\n"),
            s(b"250 ok\r\n250 ok\r\n550 no\r\n354 go on\r\n"),
            c(MAIL),
            s(b"250 queued\r\n"),
            c(b"QUIT\r\n"),
            s(b"221 bye\r\n"),
        ],
    );
    assert_eq!((r.anomalies.len(), r.finished.len()), (0, 1), "{:?}", r.anomalies);
    let Data::Smtp(smtp) = &r.finished[0].data else { panic!() };
    assert_eq!(smtp.mail_from.as_deref(), Some(&b"<a@example.com>"[..]));
    assert_eq!((smtp.rcpt_to.len(), &smtp.replies[..]), (2, &[250, 250, 550, 354, 250][..]));
    assert_eq!(smtp.email.field("to"), Some(&b"b@example.com, c@example.com"[..]));
    assert!(smtp.email.is_complete);
    assert_eq!(smtp.email.attachments, [b"a.bin"]);
    assert_eq!(r.texts(0, Buffer::EmailUrl), ["http://example.com/x=y"]);
    assert_eq!(r.texts(0, Buffer::EmailReceived), ["from x", "from y"]);
    assert_eq!(r.texts(0, Buffer::SmtpRcptTo), ["<b@example.com>", "<c@example.com>"]);
    assert_eq!(r.text(0, Buffer::SmtpHelo).as_deref(), Some("me"));
    let file = &r.files[0];
    assert_eq!((file.size, file.state, &file.name[..]), (16, FileState::Closed, &b"a.bin"[..]));
    assert_eq!(r.text(0, Buffer::FileData).unwrap().as_bytes(), (0..16).collect::<Vec<u8>>());
}

#[test]
fn chunks_of_mail_and_a_second_one() {
    let r = stream(
        25,
        &[
            s(b"220 mail ESMTP\r\n"),
            c(b"EHLO me\r\nMAIL FROM:<a>\r\nRCPT TO:<b>\r\nBDAT 12\r\nSubject: x\r\n"),
            c(b"BDAT 8 LAST\r\n\r\n.\r\nabcMAIL FROM:<c>\r\nDATA\r\n"),
            s(b"250 a\r\n250 b\r\n250 c\r\n250 d\r\n250 e\r\n250 f\r\n503 no\r\n"),
            c(b"QUIT\r\n"),
        ],
    );
    assert_eq!((r.finished.len(), r.anomalies.len()), (2, 0), "{:?}", r.anomalies);
    assert_eq!(r.text(0, Buffer::EmailSubject).as_deref(), Some("x"));
    assert_eq!(r.text(1, Buffer::SmtpMailFrom).as_deref(), Some("<c>"));
    assert_eq!(r.text(1, Buffer::SmtpHelo).as_deref(), Some("me"));
}

#[test]
fn tls_behind_starttls() {
    let steps = |last: &[u8]| {
        [
            s(b"220 mail ESMTP\r\n"),
            c(b"EHLO me\r\n"),
            s(b"250 STARTTLS\r\n"),
            c(b"STARTTLS\r\n"),
            s(b"220 go on\r\n"),
            c(last),
        ]
    };
    let r =
        stream(25, &steps(&[22, 3, 1, 0, 5, 1, 0, 0, 1, 0, 22, 3, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(r.protocols, [Some(Protocol::Smtp), Some(Protocol::Tls)]);
    let r = stream(25, &steps(b"MAIL FROM:<a> and much more text than needed\r\n"));
    assert!(r.has(AnomalyKind::NoTlsAfterStarttls), "{:?} {:?}", r.protocols, r.anomalies);
}

#[test]
fn commands_of_ftp() {
    let r = stream(
        21,
        &[
            s(b"220-hello\r\n220 there\r\n"),
            c(b"USER me\r\n"),
            s(b"331 password\r\n"),
            c(b"PASV\r\n"),
            s(b"227 Entering (10,0,0,1,4,1)\r\n"),
            c(b"RETR a b.txt\r\n"),
            s(b"150 opens\r\n226-one\r\n 226 not yet\r\n226 done\r\n"),
            c(b"QUIT"),
            Step::End(applayer::Direction::ToServer),
            Step::End(S),
        ],
    );
    assert_eq!(r.protocols, [Some(Protocol::Ftp)]);
    let of = |id: usize| match &r.finished[id].data {
        Data::Ftp(ftp) => ftp,
        other => panic!("{other:?}"),
    };
    assert_eq!(r.finished.len(), 5);
    assert_eq!((of(0).command.len(), of(0).replies.len()), (0, 2));
    assert_eq!(of(2).data_port, Some(1025));
    assert_eq!(of(3).argument, b"a b.txt");
    assert_eq!(
        of(3).replies.iter().map(|(code, _)| *code).collect::<Vec<_>>(),
        [150, 226, 226, 226]
    );
    assert_eq!(of(4).command, b"QUIT");
    assert_eq!(r.texts(3, Buffer::FtpCompletionCode), ["150", "226"]);
    assert_eq!(r.text(3, Buffer::FtpCommandData).as_deref(), Some("a b.txt"));
}
