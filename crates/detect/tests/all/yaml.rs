//! As much of YAML as `test.yaml` of suricata-verify has: mappings, sequences, plain and quoted scalars.

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Yaml {
    Scalar(String),
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    pub(crate) fn get(&self, key: &str) -> Option<&Yaml> {
        match self {
            Self::Map(pairs) => pairs.iter().find(|(own, _)| own == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(crate) fn list(&self) -> &[Yaml] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar(text) => Some(text),
            _ => None,
        }
    }

    /// Keys with dots for what is nested, and scalars.
    pub(crate) fn flat(&self, lead: &str, into: &mut Vec<(String, String)>) {
        match self {
            Self::Scalar(text) => into.push((lead.to_owned(), text.clone())),
            Self::List(items) => items.iter().for_each(|item| item.flat(lead, into)),
            Self::Map(pairs) => {
                for (key, value) in pairs {
                    let key = if lead.is_empty() { key.clone() } else { format!("{lead}.{key}") };
                    value.flat(&key, into);
                }
            }
        }
    }
}

struct Lines<'a> {
    lines: Vec<(usize, &'a str)>,
    at: usize,
}

pub(crate) fn parse(text: &str) -> Yaml {
    let lines = text.lines().filter(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#') && line != "---" && !line.starts_with('%')
    });
    let lines = lines.map(|line| (line.len() - line.trim_start().len(), line.trim()));
    let mut lines = Lines { lines: lines.collect(), at: 0 };
    lines.value(0)
}

fn scalar(text: &str) -> Yaml {
    let text = text.split(" #").next().unwrap_or(text).trim();
    let quoted = |quote| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    Yaml::Scalar(quoted('"').or_else(|| quoted('\'')).unwrap_or(text).to_owned())
}

fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.split_once(':')?;
    let is_key = !key.starts_with(['"', '\'']) && (rest.is_empty() || rest.starts_with(' '));
    is_key.then(|| (key.trim(), rest.trim()))
}

impl Lines<'_> {
    fn value(&mut self, least: usize) -> Yaml {
        let Some(&(indent, line)) = self.lines.get(self.at) else { return Yaml::Map(Vec::new()) };
        if indent < least {
            return Yaml::Scalar(String::new());
        }
        match line.starts_with("- ") || line == "-" {
            true => self.sequence(indent),
            false => self.mapping(indent),
        }
    }

    fn sequence(&mut self, own: usize) -> Yaml {
        let mut items = Vec::new();
        while let Some(&(indent, line)) = self.lines.get(self.at) {
            if indent != own || !(line.starts_with("- ") || line == "-") {
                break;
            }
            let inner = line[1..].trim_start();
            let shift = line.len() - inner.len();
            if inner.is_empty() {
                self.at += 1;
                items.push(self.value(own + 1));
            } else if key_of(inner).is_some()
                || inner.starts_with("- ") && key_of(&inner[2..]).is_some()
            {
                self.lines[self.at] = (own + shift, inner);
                items.push(self.value(own + 1));
            } else {
                self.at += 1;
                items.push(scalar(inner));
            }
        }
        Yaml::List(items)
    }

    fn mapping(&mut self, own: usize) -> Yaml {
        let mut pairs = Vec::new();
        while let Some(&(indent, line)) = self.lines.get(self.at) {
            if indent != own {
                break;
            }
            let Some((key, rest)) = key_of(line) else { break };
            self.at += 1;
            let value = if rest.is_empty() {
                // A sequence may be as far left as its key.
                match self.lines.get(self.at) {
                    Some(&(next, line)) if next == own && line.starts_with("- ") => {
                        self.sequence(own)
                    }
                    Some(&(next, _)) if next > own => self.value(own + 1),
                    _ => Yaml::Scalar(String::new()),
                }
            } else {
                let value = scalar(rest);
                // A plain scalar may go on in the next lines.
                while self.lines.get(self.at).is_some_and(|(next, line)| {
                    *next > own && key_of(line).is_none() && !line.starts_with("- ")
                }) {
                    self.at += 1;
                }
                value
            };
            pairs.push((key.to_owned(), value));
        }
        if pairs.is_empty() {
            self.at += 1;
        }
        Yaml::Map(pairs)
    }
}
