//! Key slots that a helper opens: made, and replaced.

use std::sync::Arc;
use std::time::Instant;

use cryptline::luks::LuksHeader;
use cryptline::luks::format::LuksVersion;
use cryptline::luks::token::EXEC_TOKEN;
use cryptline::{Edited, Header, NewToken, Problem, Result, Rotation, TokenMaker, TokenProvider, TokenVolume};
use serde_json::Value;

use super::{Exec, ExecToken, ExecTokens, Helpers, PATIENCE};

/// A key slot for a passphrase that a helper wraps, or keeps itself.
#[derive(Debug)]
pub struct BindHelper<'a> {
    helpers: &'a dyn Helpers,
    helper: String,
    config: Value,
    source: SecretSource,
}

/// Origin of the passphrase.
#[derive(Debug, PartialEq, Eq)]
enum SecretSource {
    /// Random, and wrapped by the helper.
    Random,
    /// The same, for a token that takes the place of this one.
    Replacing(u32),
    /// The helper's own.
    Stored,
}

impl<'a> BindHelper<'a> {
    /// By the helper of this name. `config` is a JSON object, by which the helper finds its key. Where `is_stored`, the
    /// helper has the passphrase already, as a store of secrets does, and only tells it.
    ///
    /// # Errors
    /// A `config` that is no JSON object.
    pub fn new(helpers: &'a dyn Helpers, helper: &str, config: &str, is_stored: bool) -> Result<Self> {
        let config = serde_json::from_str::<Value>(config).ok().filter(Value::is_object);
        let no_object = "the configuration of a helper is a JSON object, such as {\"key\": \"disk\"}";
        let config = config.ok_or_else(|| problem(no_object.to_owned()))?;
        let source = if is_stored { SecretSource::Stored } else { SecretSource::Random };
        Ok(Self { helpers, helper: helper.to_owned(), config, source })
    }
}

impl<'a> TokenMaker for BindHelper<'a> {
    type Prepared = Exec<'a>;

    fn prepare(&mut self, volume: &TokenVolume<'_>) -> Result<Exec<'a>> {
        if volume.header.version() == LuksVersion::Luks1 {
            return Err(problem("LUKS1 has no tokens".to_owned()).on(volume.name));
        }
        let exec = Exec::new(self.helpers, &self.helper, self.config.clone(), volume.uuid(), Instant::now() + PATIENCE);
        let exec = exec.map_err(|refusal| problem(refusal.why()).on(volume.name))?;
        // One that is replaced says by opening the volume that the helper can be used.
        if !matches!(self.source, SecretSource::Replacing(_)) {
            exec.check().map_err(|failure| failure.on(volume.name))?;
        }
        Ok(exec)
    }

    fn make(&self, volume: &TokenVolume<'_>, exec: Exec<'a>) -> Result<NewToken> {
        let made = match self.source {
            SecretSource::Random => exec.new_token(None),
            SecretSource::Replacing(old) => exec.new_token(Some(old)),
            SecretSource::Stored => exec.stored_token(),
        };
        let (secret, json) = made.map_err(|failure| failure.on(volume.name))?;
        Ok(NewToken { secret, json, warning: None })
    }
}

/// Replaces the passphrase of a token whose helper wraps it: the only such token, or the one of this number. Whatever
/// cuts it off, what the header has opens the volume, and another call goes on.
///
/// # Errors
/// No such token, or several; one that is not for one key slot; a helper that is not to be run or fails; no room for
/// another key slot.
pub fn rotate(header: Header, helpers: &Arc<dyn Helpers>, token: Option<u32>) -> Result<Edited> {
    let provider: Arc<dyn TokenProvider> = Arc::new(ExecTokens(Some(Arc::clone(helpers))));
    header.rotate(&provider, |header| Ok(rotation(header, &**helpers, token).map_err(problem)?))
}

fn problem(why: String) -> Problem {
    Problem::Target(why)
}

/// Finds the token to replace among those whose helper is to be run.
fn rotation<'a>(
    header: &LuksHeader,
    helpers: &'a dyn Helpers,
    wanted: Option<u32>,
) -> std::result::Result<Rotation<BindHelper<'a>>, String> {
    let tokens = header.info().tokens;
    let parsed = |id: u32| ExecToken::parse(&header.token_json(id).unwrap_or_default());
    let known: Vec<_> = tokens.iter().filter(|token| token.kind == EXEC_TOKEN).collect();
    let known = known.into_iter().filter_map(|token| Some((token.id, parsed(token.id).ok()?, token.keyslots.len())));
    let known: Vec<_> = known.filter(|(_, token, _)| helpers.operator(&token.helper).is_some()).collect();
    let is_wanted = |id: u32| wanted.is_none_or(|wanted| wanted == id);
    let of = |old: u32, token: &ExecToken, new| {
        let ExecToken { helper, config, .. } = token.clone();
        let maker = BindHelper { helpers, helper, config, source: SecretSource::Replacing(old) };
        Rotation { old, new, maker }
    };
    // One that a cut has left behind.
    for (new, token, _) in &known {
        let Some(old) = token.replaces.filter(|&old| is_wanted(old) || is_wanted(*new)) else {
            continue;
        };
        let replaced = known.iter().find(|(id, other, _)| *id == old && other.helper == token.helper && id != new);
        let Some((_, replaced, _)) = replaced else {
            return Err(format!(
                "token {new} says that it replaces token {old}, which is not of the same helper; import it without that"
            ));
        };
        return Ok(of(old, replaced, Some(*new)));
    }
    let mut fitting = known.iter().filter(|(id, ..)| is_wanted(*id));
    match (fitting.next(), fitting.next()) {
        (Some((_, ExecToken { wrapped: None, .. }, _)), None) => {
            Err("the passphrase of this token is kept elsewhere, so it cannot be replaced from here".to_owned())
        }
        (Some((old, token, 1)), None) => Ok(of(*old, token, None)),
        (Some((old, ..)), None) => Err(format!("token {old} is not for one key slot, so nothing can replace it")),
        (None, _) => Err("it has no such token of a helper that is to be run".to_owned()),
        (Some(_), Some(_)) => Err("several of its tokens have such a helper; say which one to replace".to_owned()),
    }
}

#[cfg(test)]
#[path = "bind_tests.rs"]
mod tests;
