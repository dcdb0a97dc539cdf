//! Requirements of a new token of clevis, as clevis has them in JSON.
//!
//! ```text
//! tang   {"url": U}, maybe with "thp": the name of a key that signs, and "adv": what the server has said, or the file
//!        that has it
//! sss    {"t": 2, "pins": {"tang": [{..}, {..}], "sss": {..}}}: so many of these; 1 where t is left out
//! ```

use std::fs::File;
use std::io::Read;

use cryptline::{Problem, Result, SecretBuf};
use serde_json::Value;

use super::jwe::Jwe;
use super::sss::{Dealer, PINS_MAX};
use super::tang::TangKeys;
use super::{DEPTH_MAX, SERVERS_MAX};

/// Longest file with the keys of a server, in bytes.
const KEPT_MAX: u64 = 64 << 10;

/// Asked whether a server is the right one; an error ends the work.
pub type TrustFn<'a> = dyn FnMut(&TangKeys) -> Result<()> + 'a;

/// Means of opening a secret.
pub enum Pin {
    /// A server, whose keys are known by now.
    Tang(Box<TangKeys>),
    /// So many of several.
    Sss { needed: usize, pins: Vec<Pin> },
}

impl Pin {
    /// The server at this URL.
    pub fn tang(url: &str, trust: &mut TrustFn<'_>) -> Result<Self> {
        let server = TangKeys::ask(url).map_err(Problem::Tang)?;
        trust(&server)?;
        Ok(Self::Tang(Box::new(server)))
    }

    /// Returns what the configuration of a pin sss says. All its servers are asked for their keys.
    pub fn sss(config: &str, trust: &mut TrustFn<'_>) -> Result<Self> {
        let config: Value =
            serde_json::from_str(config).map_err(|error| Problem::Pins(format!("it is no JSON: {error}")))?;
        let mut left = SERVERS_MAX;
        Self::several(&config, trust, DEPTH_MAX, &mut left)
    }

    fn several(config: &Value, trust: &mut TrustFn<'_>, depth: usize, servers: &mut usize) -> Result<Self> {
        let depth = depth.checked_sub(1).ok_or_else(|| wrong("its pins lie too deep"))?;
        only(config, &["t", "pins"])?;
        let named = config["pins"].as_object().ok_or_else(|| wrong("sss has no \"pins\", an object"))?;
        let needed = match config.get("t") {
            None => Some(1),
            Some(number) => number.as_u64().and_then(|it| usize::try_from(it).ok()),
        };
        let mut pins = Vec::new();
        for (kind, configs) in named {
            let configs = match configs {
                Value::Array(several) => several.as_slice(),
                one => std::slice::from_ref(one),
            };
            for config in configs {
                if pins.len() == PINS_MAX {
                    return Err(wrong("it has too many pins").into());
                }
                pins.push(match kind.as_str() {
                    "tang" => {
                        let left = servers.checked_sub(1);
                        *servers = left.ok_or_else(|| wrong("it names too many servers"))?;
                        Self::Tang(Box::new(server(config, trust)?))
                    }
                    "sss" => Self::several(config, trust, depth, servers)?,
                    other => {
                        let other = other.escape_debug();
                        let why = format!("there are the pins tang and sss, and no '{other}'");
                        return Err(Problem::Pins(why).into());
                    }
                });
            }
        }
        let needed = needed.filter(|needed| (1..=pins.len()).contains(needed));
        let needed = needed.ok_or_else(|| {
            let most = pins.len();
            Problem::Pins(format!("\"t\" is no number from 1 to {most}, which is how many pins it has"))
        })?;
        Ok(Self::Sss { needed, pins })
    }

    /// Under what `secret` lies then.
    pub fn seal(&self, secret: &SecretBuf) -> std::result::Result<Jwe, String> {
        match self {
            Self::Tang(server) => server.seal(secret).map_err(|why| format!("{}: {why}", server.url())),
            Self::Sss { needed, pins } => {
                let dealer = Dealer::new(*needed)?;
                let sealed = pins.iter().map(|pin| {
                    let sealed = pin.seal(&dealer.share()?)?;
                    Ok(sealed.to_compact())
                });
                let sealed = sealed.collect::<std::result::Result<_, String>>()?;
                Jwe::seal(dealer.header(sealed), &dealer.key()?, secret)
            }
        }
    }
}

/// A server that is trusted: by the name of its key, by what was kept of it, or by whoever is asked.
fn server(config: &Value, trust: &mut TrustFn<'_>) -> Result<TangKeys> {
    only(config, &["url", "thp", "adv"])?;
    let text = |name: &str| config.get(name).map(Value::as_str);
    let Some(Some(url)) = text("url") else {
        return Err(wrong("tang has no \"url\", a text").into());
    };
    let on_server = |why: String| Problem::Tang(format!("{url}: {why}"));
    let server = match config.get("adv") {
        None => TangKeys::ask(url),
        Some(Value::String(path)) => read(path).and_then(|kept| TangKeys::kept(url, &kept)),
        Some(kept) => TangKeys::kept(url, kept.to_string().as_bytes()),
    };
    let server = server.map_err(on_server)?;
    match text("thp") {
        Some(Some(name)) if server.is_known_as(name) => {}
        Some(Some(_)) => {
            return Err(on_server("none of its keys has the name in \"thp\"".to_owned()).into());
        }
        Some(None) => return Err(wrong("\"thp\" is no text").into()),
        None if config.get("adv").is_some() => {}
        None => trust(&server)?,
    }
    Ok(server)
}

/// Something that was misspelt, such as the name of a key, would be left out in silence.
fn only(config: &Value, known: &[&str]) -> std::result::Result<(), Problem> {
    let members = config.as_object().ok_or_else(|| wrong("a pin has no object"))?;
    let other = members.keys().find(|name| !known.contains(&name.as_str()));
    other.map_or(Ok(()), |name| {
        let name = name.escape_debug();
        Err(Problem::Pins(format!("there is no '{name}' in a pin, but {}", known.join(", "))))
    })
}

fn read(path: &str) -> std::result::Result<Vec<u8>, String> {
    let mut kept = Vec::new();
    let read = File::open(path).and_then(|file| file.take(KEPT_MAX).read_to_end(&mut kept));
    read.map_err(|error| format!("{path}: {error}"))?;
    Ok(kept)
}

fn wrong(why: &str) -> Problem {
    Problem::Pins(why.to_owned())
}
