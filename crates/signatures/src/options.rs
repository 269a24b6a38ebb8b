//! What options of a rule say, as types.

/// A condition on a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `n`
    Equal(u64),
    /// `!n`
    NotEqual(u64),
    /// `<n`
    Less(u64),
    /// `<=n`
    LessOrEqual(u64),
    /// `>n`
    Greater(u64),
    /// `>=n`
    GreaterOrEqual(u64),
    /// `a<>b` or `a-b`: between both, neither included, as in Suricata.
    Between(u64, u64),
}

impl Compare {
    /// Does the number fulfil it?
    pub fn holds(self, number: u64) -> bool {
        match self {
            Self::Equal(n) => number == n,
            Self::NotEqual(n) => number != n,
            Self::Less(n) => number < n,
            Self::LessOrEqual(n) => number <= n,
            Self::Greater(n) => number > n,
            Self::GreaterOrEqual(n) => number >= n,
            Self::Between(a, b) => a < number && number < b,
        }
    }
}

/// A number, or the name of one that `byte_extract` or `byte_math` took from the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Written in the rule.
    Number(i64),
    /// A name.
    Name(String),
}

/// Bytes to be found.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Content {
    /// The condition is that they are not there.
    pub negated: bool,
    /// At least one.
    pub bytes: Vec<u8>,
    /// Letters of ASCII match in either case.
    pub nocase: bool,
    /// Snort's raw payload; no effect in Suricata.
    pub rawbytes: bool,
    /// First byte of the buffer where it may begin.
    pub offset: Option<Value>,
    /// It ends within so many bytes, counted from `offset`.
    pub depth: Option<Value>,
    /// First byte after the last match where it may begin; may be negative.
    pub distance: Option<Value>,
    /// It ends within so many bytes after the last match, `distance` included.
    pub within: Option<Value>,
    /// It is at the beginning of the buffer.
    pub startswith: bool,
    /// It is at the end of the buffer.
    pub endswith: bool,
    /// What an engine looks for first.
    pub fast_pattern: Option<FastPattern>,
}

/// What of a content an engine looks for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FastPattern {
    /// All of it.
    Whole,
    /// All of it, and it is not checked again.
    Only,
    /// A piece.
    Piece {
        /// First byte.
        offset: u16,
        /// Bytes.
        length: u16,
    },
}

/// A regular expression of PCRE, as text. Nothing here runs it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pcre {
    /// The condition is that it does not match.
    pub negated: bool,
    /// Between the slashes, in ASCII: other bytes are written `\xhh`. `\;` and `\/`, which rules write, mean the same to PCRE.
    pub pattern: String,
    /// `i`
    pub caseless: bool,
    /// `m`
    pub multiline: bool,
    /// `s`
    pub dotall: bool,
    /// `x`
    pub extended: bool,
    /// `A`
    pub anchored: bool,
    /// `E`
    pub dollar_end_only: bool,
    /// `G`
    pub ungreedy: bool,
    /// `R`: begins at the end of the last match.
    pub relative: bool,
    /// `B`: Snort's raw payload.
    pub rawbytes: bool,
    /// `O`: overrides the limit on matches.
    pub no_limit: bool,
    /// Variables that groups of it are stored in, one after the other.
    pub captures: Vec<Capture>,
}

/// Where a group of a regular expression is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// What it belongs to.
    pub scope: CaptureScope,
    /// The name.
    pub name: String,
}

/// What a captured variable belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureScope {
    /// `flow:`
    Flow,
    /// `pkt:`
    Packet,
    /// `alert:`
    Alert,
}

/// `isdataat`: the buffer has a byte there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsDataAt {
    /// It has none there.
    pub negated: bool,
    /// Which byte.
    pub at: Value,
    /// Counted from the end of the last match.
    pub relative: bool,
    /// Snort's raw payload.
    pub rawbytes: bool,
}

/// The order of bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Endian {
    /// The most significant first.
    #[default]
    Big,
    /// The least significant first.
    Little,
    /// As the DCE/RPC header says.
    Dce,
}

/// How bytes are a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Base {
    /// Binary.
    #[default]
    Bytes,
    /// Digits of ASCII, base 16.
    Hex,
    /// Base 10.
    Dec,
    /// Base 8.
    Oct,
    /// The base follows from a prefix, `0x` or `0`.
    Auto,
}

/// Where a number is, and how it is read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Field {
    /// Order of bytes.
    pub endian: Endian,
    /// Binary or text.
    pub base: Base,
    /// Its offset counts from the end of the last match.
    pub relative: bool,
    /// These bits of it count; it is shifted right by the zeros behind them.
    pub bitmask: Option<u32>,
}

/// A relation of `byte_test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `&`: a bit is set in both.
    And,
    /// `^`: not all bits are alike.
    Xor,
}

/// `byte_test`: a number in the buffer against one in the rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteTest {
    /// Bytes of it: a number, or the name of one.
    pub bytes: Value,
    /// The relation must not hold.
    pub negated: bool,
    /// The relation.
    pub relation: Relation,
    /// Its right side.
    pub value: Value,
    /// Where it begins.
    pub offset: Value,
    /// How it is read.
    pub field: Field,
}

/// `byte_jump`: moves the place of the last match by a number in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteJump {
    /// Bytes of it.
    pub bytes: Value,
    /// Where it begins.
    pub offset: Value,
    /// How it is read.
    pub field: Field,
    /// Times so much.
    pub multiplier: Option<u16>,
    /// Rounded up to a multiple of four.
    pub align: bool,
    /// Counted from here.
    pub from: JumpFrom,
    /// Added at the end.
    pub post_offset: Option<Value>,
}

/// Where a jump starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum JumpFrom {
    /// Behind the number.
    #[default]
    Here,
    /// The first byte of the buffer.
    Beginning,
    /// Behind its last byte.
    End,
}

/// `byte_extract`: gives a number in the buffer a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteExtract {
    /// Bytes of it.
    pub bytes: u8,
    /// Where it begins.
    pub offset: i32,
    /// The name.
    pub name: String,
    /// How it is read.
    pub field: Field,
    /// Times so much.
    pub multiplier: Option<u16>,
    /// Rounded up to a multiple of 2 or 4.
    pub align: Option<u8>,
}

/// `byte_math`: gives the result of a number in the buffer and another one a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteMath {
    /// Bytes of it.
    pub bytes: Value,
    /// Where it begins.
    pub offset: i32,
    /// The operation.
    pub operation: Operation,
    /// Its right side.
    pub value: Value,
    /// The name.
    pub result: String,
    /// How it is read.
    pub field: Field,
}

/// An operation of `byte_math`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `<<`
    ShiftLeft,
    /// `>>`
    ShiftRight,
}

/// `base64_decode`: what [`Buffer::Base64Data`](crate::Buffer::Base64Data) is made of.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Base64Decode {
    /// At most so many bytes are decoded.
    pub bytes: Option<u32>,
    /// The first.
    pub offset: Option<Value>,
    /// Counted from the end of the last match.
    pub relative: bool,
}

/// `dataset`: is the buffer in a set?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// What is done.
    pub operation: SetOperation,
    /// Name of the set.
    pub name: String,
    /// `type`, `load`, `save`, `state`, `memcap`, `hashsize` and their values, in order.
    pub settings: Vec<(String, String)>,
}

/// What is done with a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// It is in it.
    IsSet,
    /// It is not.
    IsNotSet,
    /// It is added.
    Set,
    /// It is taken out.
    Unset,
}

/// `datarep`: the reputation of the buffer in a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datarep {
    /// Name of the set.
    pub name: String,
    /// The condition: greater, less or equal.
    pub value: Compare,
    /// As those of [`Dataset`].
    pub settings: Vec<(String, String)>,
}

/// What is made of a buffer before it is looked into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Runs of white space become one space.
    CompressWhitespace,
    /// White space goes.
    StripWhitespace,
    /// Pseudo headers of HTTP/2 go.
    StripPseudoHeaders,
    /// A dot in front.
    DotPrefix,
    /// Letters of ASCII become small.
    ToLowercase,
    /// Letters of ASCII become large.
    ToUppercase,
    /// Names of headers become small.
    HeaderLowercase,
    /// MD5, 16 bytes.
    ToMd5,
    /// SHA-1, 20 bytes.
    ToSha1,
    /// SHA-256, 32 bytes.
    ToSha256,
    /// `%hh` and `+` are decoded.
    UrlDecode,
    /// The registered domain.
    Domain,
    /// The top-level domain.
    Tld,
    /// Exclusive or with the key, over and over.
    Xor(Vec<u8>),
    /// The first group of a regular expression, which is kept as text.
    Pcre(String),
    /// Base64 is decoded.
    FromBase64 {
        /// At most so many bytes.
        bytes: Option<u32>,
        /// From here.
        offset: Option<u32>,
        /// How strict it is.
        mode: Option<Base64Mode>,
    },
}

/// How strict decoding of Base64 is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base64Mode {
    /// RFC 2045: other characters are passed over.
    Rfc2045,
    /// RFC 4648: other characters end it.
    Rfc4648,
    /// Whole blocks only.
    Strict,
}

/// A check of one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// `content`
    Content(Content),
    /// `pcre`
    Pcre(Pcre),
    /// `isdataat`
    IsDataAt(IsDataAt),
    /// `byte_test`
    ByteTest(ByteTest),
    /// `byte_jump`
    ByteJump(ByteJump),
    /// `byte_extract`
    ByteExtract(ByteExtract),
    /// `byte_math`
    ByteMath(ByteMath),
    /// `bsize`: the length of the buffer.
    Bsize(Compare),
    /// `absent`: there is no such buffer; with `or_else`, or the other checks of it hold.
    Absent {
        /// The other checks are an alternative.
        or_else: bool,
    },
    /// `base64_decode`
    Base64Decode(Base64Decode),
    /// `dataset`
    Dataset(Dataset),
    /// `datarep`
    Datarep(Datarep),
}

/// `flow`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flow {
    /// Which way the packet goes.
    pub to: Option<FlowSide>,
    /// What the connection is like.
    pub state: Option<FlowState>,
    /// `only_stream` or `no_stream`.
    pub stream: Option<bool>,
    /// `only_frag` or `no_frag`.
    pub fragments: Option<bool>,
}

/// A side of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSide {
    /// `to_server`, `from_client`
    Server,
    /// `to_client`, `from_server`
    Client,
}

/// A state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// `established`
    Established,
    /// `not_established`
    NotEstablished,
    /// `stateless`
    Stateless,
}

/// `flowbits`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flowbits {
    /// One of them is set.
    IsSet(Vec<String>),
    /// One of them is not set.
    IsNotSet(Vec<String>),
    /// They are set after a match.
    Set(Vec<String>),
    /// They are unset.
    Unset(Vec<String>),
    /// They change.
    Toggle(Vec<String>),
}

/// `flowint`: a counter of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flowint {
    /// Its name.
    pub name: String,
    /// What is done.
    pub operation: FlowintOperation,
}

/// What is done with a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowintOperation {
    /// `=`
    Set(FlowintValue),
    /// `+`
    Add(FlowintValue),
    /// `-`
    Subtract(FlowintValue),
    /// `<`, `<=`, `>`, `>=`, `==`, `!=`
    Compare(FlowintRelation, FlowintValue),
    /// `isset`
    IsSet,
    /// `notset`
    IsNotSet,
}

/// A relation of `flowint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowintRelation {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A number or another counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowintValue {
    /// A number.
    Number(u32),
    /// A counter.
    Name(String),
}

/// What is done with a bit of a host or of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperation {
    /// `set`
    Set,
    /// `unset`
    Unset,
    /// `toggle`
    Toggle,
    /// `isset`
    IsSet,
    /// `isnotset`
    IsNotSet,
}

/// What an `xbits` belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XbitsTrack {
    /// `ip_src`
    Source,
    /// `ip_dst`
    Destination,
    /// `ip_pair`
    Pair,
    /// `tx`
    Transaction,
}

/// `xbits`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xbits {
    /// What is done.
    pub operation: BitOperation,
    /// Its name.
    pub name: String,
    /// What it belongs to.
    pub track: XbitsTrack,
    /// Seconds until a bit that is set goes.
    pub expire_s: Option<u32>,
}

/// `hostbits`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hostbits {
    /// What is done.
    pub operation: BitOperation,
    /// Its name.
    pub name: String,
    /// The host: source, destination or both; none is the source.
    pub side: Option<EndSide>,
}

/// An end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndSide {
    /// `src`
    Source,
    /// `dst`
    Destination,
    /// `both`
    Both,
}

/// How a set of bits is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitsMode {
    /// These and no others.
    Exactly,
    /// `+`: these, perhaps others.
    AtLeast,
    /// `*`: one of these.
    Any,
    /// `!`: not all of these; of no bits at all, one of any.
    NotAll,
}

/// `flags`: bits of the TCP header, FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags {
    /// How they are compared.
    pub mode: BitsMode,
    /// Which.
    pub bits: u8,
    /// These do not count.
    pub ignored: u8,
}

/// `fragbits`: more fragments 1, do not fragment 2, reserved 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragbits {
    /// How they are compared.
    pub mode: BitsMode,
    /// The sign is behind the letters, as in Snort: `M+` holds for `M` alone, and `+M`, as in Suricata, does not.
    pub sign_behind: bool,
    /// Which.
    pub bits: u8,
}

/// An option of the IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpOption {
    /// Record route.
    Rr,
    /// Loose source route.
    Lsrr,
    /// Loose source route, Snort's `lsrre`.
    Lsrre,
    /// Strict source route.
    Ssrr,
    /// End of list.
    Eol,
    /// No operation.
    Nop,
    /// Timestamp.
    Ts,
    /// Basic security.
    Sec,
    /// Extended security.
    Esec,
    /// Stream identifier.
    Satid,
    /// Any.
    Any,
}

/// A number that must be or must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Must not.
    pub negated: bool,
    /// The number.
    pub number: u32,
}

/// Which side's bytes `stream_size` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamSide {
    /// `server`
    Server,
    /// `client`
    Client,
    /// `both`: each of the two.
    Both,
    /// `either`: one of the two.
    Either,
}

/// Whose reputation `iprep` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IprepSide {
    /// `any`: either end.
    Any,
    /// `src`
    Source,
    /// `dst`
    Destination,
    /// `both`
    Both,
}

/// Which of a flow's protocols `app-layer-protocol` compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolMode {
    /// `final`
    Final,
    /// `original`
    Original,
    /// `to_server`
    ToServer,
    /// `to_client`
    ToClient,
    /// `either`
    Either,
}

/// A condition on a packet, a flow or a message as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `flow`
    Flow(Flow),
    /// `flowbits`, but for `noalert`
    Flowbits(Flowbits),
    /// `flowint`
    Flowint(Flowint),
    /// `xbits`, but for `noalert`
    Xbits(Xbits),
    /// `hostbits`
    Hostbits(Hostbits),
    /// `dsize`: bytes of payload
    Dsize(Compare),
    /// `urilen`: bytes of the URI, raw or normalised
    Urilen {
        /// The condition.
        size: Compare,
        /// Of the raw one.
        raw: bool,
    },
    /// `flags`
    Flags(TcpFlags),
    /// `seq`
    Seq(u32),
    /// `ack`
    Ack(u32),
    /// `window`
    Window(Number),
    /// `tcp.mss`
    Mss(Compare),
    /// `ttl`
    Ttl(Compare),
    /// `id` of IPv4
    Id(u16),
    /// `fragbits`
    Fragbits(Fragbits),
    /// `fragoffset`, in units of eight bytes
    FragOffset(Compare),
    /// `ipopts`
    Ipopts(IpOption),
    /// `itype`
    Itype(Compare),
    /// `icode`
    Icode(Compare),
    /// `icmp_id`
    IcmpId(u16),
    /// `icmp_seq`
    IcmpSeq(u16),
    /// `ip_proto`
    IpProto(Compare),
    /// `sameip`
    SameIp,
    /// `tos`
    Tos(Number),
    /// `stream_size`: bytes of the sides so far
    StreamSize(StreamSide, Compare),
    /// `app-layer-protocol`
    AppProtocol {
        /// Not this.
        negated: bool,
        /// Suricata's name.
        name: String,
        /// Which of the flow's.
        mode: Option<ProtocolMode>,
    },
    /// `app-layer-event`
    AppEvent(String),
    /// `decode-event`
    DecodeEvent(String),
    /// `stream-event`
    StreamEvent(String),
    /// `iprep`
    Iprep {
        /// Whose.
        side: IprepSide,
        /// Which reputation.
        category: String,
        /// Its value; none where there must not be any.
        value: Option<Compare>,
    },
    /// `tls.version`, `ssl_version`: one of these is (or none is).
    TlsVersion {
        /// None of them.
        negated: bool,
        /// Of 0x0002, 0x0300 to 0x0304.
        versions: Vec<u16>,
    },
    /// `ssl_state`: one of `client_hello`, `server_hello`, `client_keyx`, `server_keyx`, `unknown`.
    SslState(Vec<String>),
    /// `tls_cert_valid` (true), `tls_cert_expired` (false)
    TlsCertValid(bool),
    /// `tls.cert_chain_len`
    TlsChainLength(Compare),
    /// `tls.subject`, `tls.issuerdn`, `tls.fingerprint`, `ssh.protoversion`, `ssh.softwareversion`, `filename`, `fileext`,
    /// `filemagic`: a text of the message.
    Text {
        /// The keyword.
        of: TextOf,
        /// Not this one.
        negated: bool,
        /// The text.
        text: String,
    },
    /// `filesize`
    FileSize(Compare),
    /// `filestore`: the file is kept; with its options as they are written.
    FileStore(Option<String>),
    /// `dns.opcode`
    DnsOpcode(Compare),
    /// `dns.rcode`
    DnsRcode(Compare),
    /// `dns.rrtype`
    DnsRrtype(Compare),
}

/// Which text of a message [`Condition::Text`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOf {
    /// `tls.subject`
    TlsSubject,
    /// `tls.issuerdn`
    TlsIssuer,
    /// `tls.fingerprint`
    TlsFingerprint,
    /// `ssh.protoversion`
    SshProtoVersion,
    /// `ssh.softwareversion`
    SshSoftwareVersion,
    /// `filename`
    FileName,
    /// `fileext`
    FileExtension,
    /// `filemagic`
    FileMagic,
}
