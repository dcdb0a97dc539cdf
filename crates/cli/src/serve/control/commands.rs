//! Effect of each command. None of them opens anything: the server has given that right up.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cryptline_nbd::uri::NbdUri;
use cryptline_serve::UNANSWERED;
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{ExportStatus, Looked, NbdServer, NotFlushed, RemoveError, Removed};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::add::AddedImages;
use super::session::ControlLine;
use super::wire::{ControlFailure, ControlReply, ControlRequest, Nothing, Remove, Whose, parse};
use crate::CliError;
use crate::args::DispatchArgs;
use crate::error::Kind;
use crate::output::complain;
use crate::serve::certificates::Again;
use crate::serve::events;
use crate::serve::front::ServedVolume;
use crate::serve::statistics::{self, Sampler};
use crate::serve::volumes::{Volumes, why_lost};

/// A running server, for those who may give it commands.
pub struct ServerControl {
    pub(super) server: Arc<NbdServer>,
    pub(super) volumes: Volumes,
    statistics: statistics::ServerInfo,
    pub(super) how: HowServed,
    pub(super) added: AddedImages,
}

/// Options of serving, as the server was told them.
pub struct HowServed {
    /// Where its exports are, each without a name.
    pub places: Vec<NbdUri>,
    /// Choice of who runs the cipher of volumes that are added.
    pub dispatch: DispatchArgs,
    /// Means of reading its certificates again, if it has some.
    pub certificates: Option<Again>,
}

impl ServerControl {
    /// Of a server that tells what it serves by `volumes`.
    pub fn new(server: &Arc<NbdServer>, volumes: &Volumes, poll: Poll, how: HowServed) -> Self {
        let shown = volumes.clone();
        server.exports().on_closed(move |export, flushed| {
            if let Err((name, fault)) = flushed {
                complain(&shown.lost("export", name, *fault));
            }
            shown.forget(&export.stats);
        });
        Self {
            server: Arc::clone(server),
            volumes: volumes.clone(),
            statistics: statistics::ServerInfo::new(volumes.clone(), poll),
            how,
            added: AddedImages::default(),
        }
    }

    /// Returns what one client is told of.
    pub(super) fn sampler(&self) -> Sampler {
        Sampler::new(self.statistics.clone())
    }

    /// Does what a line says; the reply, with its line end.
    pub(super) fn answer(self: &Arc<Self>, line: ControlLine, user: u32, sampler: &mut Sampler) -> Vec<u8> {
        let request = parse::<ControlRequest>(&line.text).map_err(|error| {
            CliError::parameters(format!("not a command: {error}; send a line such as {{\"execute\": \"list\"}}"))
        });
        let (done, id) = match request {
            Ok(ControlRequest { execute, arguments, id }) => {
                let name = arguments.get("name").and_then(Value::as_str).map(str::to_owned);
                let done = self.execute(&execute, arguments, line.files, sampler);
                events::of_command(user, &execute, name.as_deref(), done.as_ref().err());
                (done, id)
            }
            Err(error) => (Err(error), None),
        };
        let (returned, error) = match done {
            Ok(returned) => (Some(returned), None),
            Err(error) => (None, Some(ControlFailure::of(&error))),
        };
        line_of(&ControlReply { returned, error, id })
    }

    fn execute(
        self: &Arc<Self>,
        command: &str,
        arguments: Map<String, Value>,
        files: Vec<OwnedFd>,
        sampler: &mut Sampler,
    ) -> Result<Value, CliError> {
        match command {
            "list" => {
                let Nothing {} = of(command, arguments)?;
                Ok(self.list())
            }
            "stats" => {
                let Nothing {} = of(command, arguments)?;
                Ok(json!(sampler.sample()))
            }
            "reload" => {
                let Nothing {} = of(command, arguments)?;
                self.reload()
            }
            "flush" => self.flush(&of(command, arguments)?),
            "resize" => self.resize(&of(command, arguments)?),
            "remove" => self.remove(&of(command, arguments)?),
            "add" => self.add_within_limit(of(command, arguments)?, files),
            other => Err(CliError::parameters(format!(
                "there is no command {other:?}; there are add, flush, list, reload, remove, resize and stats"
            ))),
        }
    }

    fn list(&self) -> Value {
        let volumes = self.volumes.now();
        let of_volume = |status: &ExportStatus| {
            let mut volumes = volumes.iter();
            let volume = volumes.find(|volume| volume.counts_in(&status.export.stats));
            self.describe(status, volume)
        };
        let exports = self.server.exports().status();
        json!({ "exports": exports.iter().map(of_volume).collect::<Vec<_>>() })
    }

    fn describe(&self, status: &ExportStatus, volume: Option<&ServedVolume>) -> Value {
        let export = &status.export;
        let info = volume.map(|volume| &volume.info);
        json!({
            "name": export.name,
            "description": export.description,
            "size": export.gate.size(),
            "read_only": export.gate.geometry().read_only,
            "connections": status.clients,
            "leaving": status.leaving,
            "failed": export.gate.is_latched(),
            "target": info.map(|info| info.source.clone()),
            "type": info.map(|info| info.kind.to_string()),
            "cipher": info.map(|info| info.cipher.clone()),
            "uris": self.uris(&export.name),
        })
    }

    pub(super) fn uris(&self, name: &str) -> Vec<String> {
        let of_export = |place: &NbdUri| place.with_export(name).to_string();
        self.how.places.iter().map(of_export).collect()
    }

    /// Checks that there is an export of this name, where one is named.
    fn check_known(&self, whose: &Whose) -> Result<(), CliError> {
        let exports = self.server.exports().status();
        match &whose.name {
            Some(name) if exports.iter().all(|status| status.export.name != *name) => Err(self.unknown(name)),
            _ => Ok(()),
        }
    }

    fn unknown(&self, name: &str) -> CliError {
        let exports = self.server.exports().status();
        let names: Vec<_> = exports.iter().map(|status| format!("{:?}", status.export.name)).take(16).collect();
        let known = match names.len() {
            0 => "none".to_owned(),
            _ => names.join(", "),
        };
        CliError::parameters(format!("there is no export {name:?}; there are: {known}"))
    }

    /// All of them, even after one has failed. One that another session removes meanwhile is none of them: that one was told
    /// what became of it.
    fn flush(&self, whose: &Whose) -> Result<Value, CliError> {
        self.check_known(whose)?;
        let (mut flushed, mut failed) = (Vec::new(), Vec::new());
        for (name, ended) in self.server.flush(whose.name.as_deref()) {
            match ended {
                Ok(()) => flushed.push(name),
                Err(why) => failed.push(self.not_flushed(&name, why)),
            }
        }
        one_of(failed)?;
        Ok(json!({ "flushed": flushed }))
    }

    fn not_flushed(&self, name: &str, why: NotFlushed) -> CliError {
        match why {
            NotFlushed::Failed(fault) => CliError::device(not_durable(name, &self.volumes.told(name, fault))),
            NotFlushed::Unanswered => CliError::device(format!(
                "export {name:?}: its medium has not answered a flush so far, so it is not known whether what was written is \
                 durable; check the medium, and flush again"
            )),
            NotFlushed::NotAsked { error, is_busy } => {
                let kind = if is_busy { Kind::Busy } else { Kind::Device };
                let text = format!(
                    "export {name:?}: could not be flushed now ({error}); that alone loses nothing: flush again, or let \
                     its clients flush"
                );
                CliError::new(kind, text)
            }
        }
    }

    fn reload(&self) -> Result<Value, CliError> {
        let Some(certificates) = &self.how.certificates else {
            return Err(CliError::parameters("nothing to reload: TLS is off"));
        };
        let expiry = certificates.read().map_err(CliError::parameters)?;
        Ok(json!({ "valid_until": expiry }))
    }

    /// Growth is noticed, where it can be; whoever connects from now on sees it.
    fn resize(&self, whose: &Whose) -> Result<Value, CliError> {
        self.check_known(whose)?;
        let (mut exports, mut failed) = (Vec::new(), Vec::new());
        for Looked { name, before, size } in self.server.exports().look_for_growth(whose.name.as_deref()) {
            match size {
                Some(size) => exports.push(json!({"name": name, "before": before, "size": size})),
                None => failed.push(CliError::device(format!(
                    "export {name:?}: its medium has not said so far how large it is, and it stays as it was; check the \
                     medium, and ask again"
                ))),
            }
        }
        one_of(failed)?;
        Ok(json!({ "exports": exports }))
    }

    fn remove(&self, remove: &Remove) -> Result<Value, CliError> {
        // Before it is gone.
        let source = self.volumes.source(&remove.name);
        let removed = self.server.remove(&remove.name, remove.now);
        let removed = removed.map_err(|error| match error {
            RemoveError::Unknown(name) => self.unknown(&name),
            closing @ RemoveError::Closing(_) => CliError::busy(closing.to_string()),
        })?;
        match removed {
            Removed::Later { clients } => Ok(json!({"closed": false, "connections": clients})),
            Removed::Closed(Ok(())) => Ok(json!({"closed": true, "connections": 0})),
            Removed::Closed(Err((name, UNANSWERED))) => Err(CliError::device(format!(
                "export {name:?}: its medium has not answered the last flush, so what was written since the flush before it may be lost; \
                 nobody is served it any more, and it stays open until the medium answers or the server ends"
            ))),
            Removed::Closed(Err((name, fault))) => Err(CliError::device(format!(
                "{}; the export is closed",
                not_durable(&name, &why_lost(source.as_deref(), fault))
            ))),
        }
    }
}

/// All that failed as one error, if anything did.
fn one_of(failed: Vec<CliError>) -> Result<(), CliError> {
    let Some(first) = failed.first() else { return Ok(()) };
    let is_alike = failed.iter().all(|error| error.kind() == first.kind());
    let kind = if is_alike { first.kind() } else { Kind::Device };
    let texts: Vec<_> = failed.iter().map(ToString::to_string).collect();
    Err(CliError::new(kind, texts.join("; ")))
}

fn not_durable(name: &str, why: &str) -> String {
    format!("export {name:?}: the flush failed ({why}); what was written since the flush before it may be lost")
}

/// The arguments of `command`.
fn of<T: for<'de> Deserialize<'de>>(command: &str, arguments: Map<String, Value>) -> Result<T, CliError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| CliError::parameters(format!("the arguments of {command}: {error}")))
}

/// For who has asked for nothing that makes sense.
pub(super) fn refusal(why: &CliError) -> Vec<u8> {
    line_of(&ControlReply { error: Some(ControlFailure::of(why)), ..ControlReply::default() })
}

fn line_of(reply: &ControlReply) -> Vec<u8> {
    // Numbers and names always are JSON.
    let mut line = serde_json::to_vec(reply).unwrap_or_default();
    line.push(b'\n');
    line
}
