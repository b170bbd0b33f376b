//! An HTTP/1.1 client that keeps what was on the wire: header lines in order, with repeats, and the body's bytes.
//!
//! One connection per request. It knows what the harness needs and no more: content-length and chunked bodies.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// How long a read may take before the exchange fails.
const PATIENCE: Duration = Duration::from_secs(40);
const HEAD_LINES_MAX: usize = 128;
const BODY_SHOWN: usize = 300;

/// A request under construction.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    path: String,
    lines: Vec<(String, String)>,
    body: Vec<u8>,
    framed: bool,
    version: &'static str,
}

impl Request {
    /// A request without headers or body.
    pub fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            lines: Vec::new(),
            body: Vec::new(),
            framed: true,
            version: "1.1",
        }
    }

    /// A GET.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// A POST with a body.
    pub fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", path).body(body)
    }

    /// Adds a header line; the same name may be added again.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds `Idempotency-Key: "key"`.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", &format!("\"{key}\""))
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Sets the bytes that follow the head and adds no content-length: the caller's header lines say how they are
    /// framed, or lie about it.
    #[must_use]
    pub fn raw_body(mut self, bytes: &str) -> Self {
        self.framed = false;
        self.body(bytes)
    }

    /// As a client of HTTP/1.0 sends it.
    #[must_use]
    pub fn version_1_0(mut self) -> Self {
        self.version = "1.0";
        self
    }

    /// The method.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Header lines as they were added.
    pub fn lines(&self) -> &[(String, String)] {
        &self.lines
    }

    /// The body.
    pub fn sent_body(&self) -> &[u8] {
        &self.body
    }

    /// Sends the request and reads the whole answer.
    ///
    /// # Errors
    /// When the server cannot be reached, leaves, takes too long, or answers what is no HTTP/1.1.
    pub fn send(&self, server: SocketAddr) -> anyhow::Result<Answer> {
        self.start(server)?.finish()
    }

    /// Sends the request and leaves the answer for later, so that the caller may give up by dropping it.
    ///
    /// # Errors
    /// When the server cannot be reached or does not take the request.
    pub fn start(&self, server: SocketAddr) -> anyhow::Result<Started> {
        let mut stream = TcpStream::connect_timeout(&server, PATIENCE)
            .with_context(|| format!("cannot reach {server}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        stream
            .write_all(&self.bytes())
            .with_context(|| format!("{server} did not take the request"))?;
        Ok(Started {
            stream,
            head_request: self.method == "HEAD",
        })
    }

    fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/{}\r\n", self.method, self.path, self.version);
        if !self.lines.iter().any(|(name, _)| name == "host") {
            head.push_str("host: demo.test\r\n");
        }
        for (name, value) in &self.lines {
            head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
        }
        if self.framed
            && (!self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH"))
        {
            head.extend(["content-length: ", &self.body.len().to_string(), "\r\n"]);
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}

/// A request that was sent; dropping it closes the connection.
#[derive(Debug)]
pub struct Started {
    stream: TcpStream,
    head_request: bool,
}

impl Started {
    /// Reads the head of the answer, and leaves its body.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn head(&mut self) -> anyhow::Result<Answer> {
        let mut received = Received {
            stream: &mut self.stream,
            bytes: Vec::new(),
        };
        Ok(received.head(self.head_request)?.0)
    }

    /// Reads the whole answer.
    ///
    /// # Errors
    /// As [`Request::send`].
    pub fn finish(mut self) -> anyhow::Result<Answer> {
        let mut received = Received {
            stream: &mut self.stream,
            bytes: Vec::new(),
        };
        let (mut answer, framing) = loop {
            let (answer, framing) = received.head(self.head_request)?;
            // Interim answers precede the answer.
            if answer.status >= 200 {
                break (answer, framing);
            }
        };
        answer.body = match framing {
            Framing::Length(length) => received.take(length)?,
            Framing::Chunked => received.chunks()?,
            Framing::UntilClosed => received.rest()?,
        };
        Ok(answer)
    }
}

enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

/// What has come and is not used yet.
struct Received<'a> {
    stream: &'a mut TcpStream,
    bytes: Vec<u8>,
}

impl Received<'_> {
    fn head(&mut self, head_request: bool) -> anyhow::Result<(Answer, Framing)> {
        loop {
            let mut lines = [httparse::EMPTY_HEADER; HEAD_LINES_MAX];
            let mut head = httparse::Response::new(&mut lines);
            if let httparse::Status::Complete(length) =
                head.parse(&self.bytes).context("no HTTP/1.1 answer")?
            {
                let answer = Answer {
                    status: head.code.context("an answer without a status")?,
                    lines: head
                        .headers
                        .iter()
                        .map(|line| (line.name.to_owned(), line.value.to_vec()))
                        .collect(),
                    body: Vec::new(),
                };
                self.bytes.drain(..length);
                let framing = framing(&answer, head_request)?;
                return Ok((answer, framing));
            }
            ensure!(
                self.more()?,
                "the connection ended before the answer's head was whole"
            );
        }
    }

    fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.bytes.len() < length {
            let came = self.bytes.len();
            ensure!(
                self.more()?,
                "the connection ended after {came} of {length} bytes of the body"
            );
        }
        Ok(self.bytes.drain(..length).collect())
    }

    fn chunks(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = loop {
                match httparse::parse_chunk_size(&self.bytes) {
                    Ok(httparse::Status::Complete((used, size))) => {
                        self.bytes.drain(..used);
                        break usize::try_from(size)?;
                    }
                    Ok(httparse::Status::Partial) => {
                        ensure!(self.more()?, "the connection ended between chunks");
                    }
                    Err(error) => bail!("no chunk size: {error:?}"),
                }
            };
            body.extend(self.take(size)?);
            if size == 0 {
                return Ok(body);
            }
            ensure!(
                self.take(2)? == b"\r\n",
                "a chunk that is longer than its size"
            );
        }
    }

    fn rest(&mut self) -> anyhow::Result<Vec<u8>> {
        while self.more()? {}
        Ok(std::mem::take(&mut self.bytes))
    }

    /// Reads on; false at the end of the stream.
    fn more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 16 * 1024];
        let length = self.stream.read(&mut piece)?;
        self.bytes.extend(piece.iter().take(length));
        Ok(length > 0)
    }
}

fn framing(answer: &Answer, head_request: bool) -> anyhow::Result<Framing> {
    if head_request || answer.status < 200 || matches!(answer.status, 204 | 304) {
        return Ok(Framing::Length(0));
    }
    if answer
        .header("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    {
        return Ok(Framing::Chunked);
    }
    match answer.header("content-length") {
        Some(length) => Ok(Framing::Length(
            length
                .parse()
                .with_context(|| format!("content-length {length}"))?,
        )),
        None => Ok(Framing::UntilClosed),
    }
}

/// A whole answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Header lines as they came, in order, repeats kept.
    pub lines: Vec<(String, Vec<u8>)>,
    /// The body, without its transfer coding.
    pub body: Vec<u8>,
}

/// Headers that belong to an exchange and not to what is kept of an answer, so a replay has its own: SEMANTICS,
/// idempotency 15.
const FRESH: &[&str] = &[
    "date",
    "server",
    "ratelimit",
    "ratelimit-policy",
    "idempotent-replayed",
    "x-request-id",
];
const FRESH_PREFIXES: &[&str] = &["x-ratelimit-", "x-envoy-"];

impl fmt::Debug for Answer {
    /// As on the wire; a body's first bytes are enough to tell it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.get(..BODY_SHOWN).unwrap_or(&self.body);
        write!(formatter, "{}", self.status)?;
        for (name, value) in &self.lines {
            write!(formatter, " | {name}: {}", value.escape_ascii())?;
        }
        write!(
            formatter,
            " | {} bytes: {}",
            self.body.len(),
            body.escape_ascii()
        )
    }
}

impl Answer {
    /// The value of the first line with this name (in lower case), when it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.lines
            .iter()
            .find(|(line, _)| line.eq_ignore_ascii_case(name))
            .and_then(|(_, value)| std::str::from_utf8(value).ok())
    }

    /// Whether it is marked as a replay.
    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The `type` of a problem (RFC 9457); empty when it is none.
    pub fn problem(&self) -> String {
        if self.header("content-type") != Some("application/problem+json") {
            return String::new();
        }
        self.json()
            .get("type")
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// The answer less the header lines that every exchange has of its own: what a replay must repeat to the byte.
    #[must_use]
    pub fn kept(&self) -> Self {
        let fresh = |name: &str| {
            let name = name.to_ascii_lowercase();
            FRESH.contains(&name.as_str())
                || FRESH_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        Self {
            lines: self
                .lines
                .iter()
                .filter(|(name, _)| !fresh(name))
                .cloned()
                .collect(),
            ..self.clone()
        }
    }

    /// The answer as it would be written to a file: status line, header lines, body.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in &self.lines {
            bytes.extend(name.as_bytes());
            bytes.extend(b": ");
            bytes.extend(value);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"\r\n");
        bytes.extend(&self.body);
        bytes
    }
}
