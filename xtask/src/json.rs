//! Reads JSON (RFC 8259), for looking at what our own programs write.

/// A value. Numbers stay as they are written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The one value that a text holds; an error says at which byte it is none.
    pub(crate) fn parse(text: &str) -> Result<Json, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0);
        reader.blanks();
        match value {
            Some(value) if reader.at == text.len() => Ok(value),
            _ => Err(format!("no JSON at byte {} of {}", reader.at, text.len())),
        }
    }

    /// The member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// A text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Json::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// The values of a list; none for anything else.
    pub(crate) fn list(&self) -> &[Json] {
        match self {
            Json::List(values) => values,
            _ => &[],
        }
    }
}

const DEPTH_MAX: usize = 64;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn eat(&mut self, word: &str) -> Option<()> {
        self.rest().starts_with(word).then(|| self.at += word.len())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > DEPTH_MAX {
            return None;
        }
        self.blanks();
        match self.rest().bytes().next()? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => self.string().map(Json::Text),
            b't' => self.eat("true").map(|()| Json::Bool(true)),
            b'f' => self.eat("false").map(|()| Json::Bool(false)),
            b'n' => self.eat("null").map(|()| Json::Null),
            _ => self.digits(),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        let mut members = Vec::new();
        self.eat("{")?;
        self.blanks();
        if self.eat("}").is_some() {
            return Some(Json::Object(members));
        }
        loop {
            self.blanks();
            let name = self.string()?;
            self.blanks();
            self.eat(":")?;
            members.push((name, self.value(depth + 1)?));
            self.blanks();
            if self.eat(",").is_none() {
                return self.eat("}").map(|()| Json::Object(members));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        let mut values = Vec::new();
        self.eat("[")?;
        self.blanks();
        if self.eat("]").is_some() {
            return Some(Json::List(values));
        }
        loop {
            values.push(self.value(depth + 1)?);
            self.blanks();
            if self.eat(",").is_none() {
                return self.eat("]").map(|()| Json::List(values));
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        self.eat("\"")?;
        let mut text = String::new();
        loop {
            let c = self.rest().chars().next()?;
            self.at += c.len_utf8();
            match c {
                '"' => return Some(text),
                '\\' => text.push(self.escape()?),
                c if c < ' ' => return None,
                c => text.push(c),
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let code = u32::from_str_radix(self.rest().get(..4)?, 16).ok()?;
                self.at += 4;
                // Half of a pair stands for nothing that we write.
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return None,
        })
    }

    fn digits(&mut self) -> Option<Json> {
        let is_part = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
        let rest = self.rest();
        let number = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        let digits = number.trim_start_matches('-');
        let is_one = digits.starts_with(|c: char| c.is_ascii_digit())
            && !(digits.len() > 1
                && digits.starts_with('0')
                && digits.as_bytes()[1].is_ascii_digit())
            && !number.ends_with('.')
            && number.parse::<f64>().is_ok();
        let number = is_one.then(|| number.to_string())?;
        self.at += number.len();
        Some(Json::Number(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read() {
        let json = Json::parse(
            " {\"a\": [1, -2.5e3, true, false, null, {}, []], \"b\": \"\\u00b5s \\\"\\n\\\\ é\"}\n",
        );
        let json = json.unwrap();
        assert_eq!(json.get("a").unwrap().list().len(), 7);
        assert_eq!(json.get("a").unwrap().list()[0].number(), Some(1));
        assert_eq!(json.get("a").unwrap().list()[1], Json::Number("-2.5e3".into()));
        assert_eq!(json.get("b").unwrap().text(), Some("µs \"\n\\ é"));
        assert_eq!(json.get("c"), None);
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "[1 2]",
            "\"\n\"",
            "\"\\x\"",
            "01",
            "1.",
            "-",
            "+1",
            "nul",
            "[] []",
            "\"",
            "{\"a\" 1}",
            ",",
        ] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(100_000)).is_err(), "no end of the stack");
    }
}
