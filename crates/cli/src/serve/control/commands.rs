//! What each command does. None of them opens anything: the server has given that right up.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

use cryptline_engine::Fault;
use cryptline_nbd::uri::NbdUri;
use cryptline_serve::UNANSWERED;
use cryptline_serve::lane::Poll;
use cryptline_serve::nbd::{ExportStatus, RemoveError, Removed, Server};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::add::Added;
use super::session::Line;
use super::wire::{Failure, Nothing, Remove, Reply, Request, Whose, parse};
use crate::CliError;
use crate::args::DispatchOptions;
use crate::error::Kind;
use crate::output::complain;
use crate::serve::certificates::Again;
use crate::serve::front::Served;
use crate::serve::statistics::{self, Sampler};
use crate::serve::volumes::{Volumes, why_lost};

/// A running server, for those who may give it commands.
pub struct Control {
    pub(super) server: Arc<Server>,
    pub(super) volumes: Volumes,
    statistics: statistics::Server,
    pub(super) how: HowServed,
    pub(super) added: Mutex<Vec<Added>>,
}

/// What the server was told of how to serve.
pub struct HowServed {
    /// Where its exports are, each without a name.
    pub places: Vec<NbdUri>,
    /// Who runs the cipher of volumes that are added.
    pub dispatch: DispatchOptions,
    /// What reads its certificates again, if it has some.
    pub certificates: Option<Again>,
}

impl Control {
    /// Of a server that tells what it serves by `volumes`.
    pub fn new(server: &Arc<Server>, volumes: &Volumes, poll: Poll, how: HowServed) -> Self {
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
            statistics: statistics::Server::new(volumes.clone(), Arc::new(OnceLock::from(poll))),
            how,
            added: Mutex::default(),
        }
    }

    /// What one client is told of.
    pub(super) fn sampler(&self) -> Sampler {
        Sampler::new(self.statistics.clone())
    }

    /// Does what a line says; the reply, with its line end.
    pub(super) fn answer(&self, line: Line, sampler: &mut Sampler) -> Vec<u8> {
        let request = parse::<Request>(&line.text).map_err(|error| {
            CliError::parameters(format!("not a command: {error}; send a line such as {{\"execute\": \"list\"}}"))
        });
        let (done, id) = match request {
            Ok(Request { execute, arguments, id }) => {
                let done = self.execute(&execute, arguments, line.files, sampler);
                (done, id)
            }
            Err(error) => (Err(error), None),
        };
        let (returned, error) = match done {
            Ok(returned) => (Some(returned), None),
            Err(error) => (None, Some(Failure::of(&error))),
        };
        line_of(&Reply { returned, error, id })
    }

    fn execute(
        &self,
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
            "add" => self.add(&of(command, arguments)?, files),
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

    fn describe(&self, status: &ExportStatus, volume: Option<&Served>) -> Value {
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

    /// The exports that are meant: all, or the one of this name.
    fn meant(&self, whose: &Whose) -> Result<Vec<ExportStatus>, CliError> {
        let mut exports = self.server.exports().status();
        if let Some(name) = &whose.name {
            exports.retain(|status| status.export.name == *name);
            if exports.is_empty() {
                return Err(self.unknown(name));
            }
        }
        Ok(exports)
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

    /// All of them, even after one has failed.
    fn flush(&self, whose: &Whose) -> Result<Value, CliError> {
        let named = |status: ExportStatus| status.export.name.clone();
        let names: Vec<_> = self.meant(whose)?.into_iter().map(named).collect();
        let (mut flushed, mut failed) = (Vec::new(), Vec::new());
        for name in names {
            // One at a time: what is kept here cannot be closed.
            let mut exports = self.server.exports().status().into_iter();
            let Some(status) = exports.find(|status| status.export.name == name) else {
                // Another session has removed it meanwhile, and was told what became of it.
                continue;
            };
            drop(exports);
            match self.flush_one(&status) {
                Ok(()) => flushed.push(name),
                Err(error) => failed.push(error),
            }
        }
        let Some(first) = failed.first() else {
            return Ok(json!({ "flushed": flushed }));
        };
        let is_alike = failed.iter().all(|error| error.kind() == first.kind());
        let kind = if is_alike { first.kind() } else { Kind::Device };
        let texts: Vec<_> = failed.iter().map(ToString::to_string).collect();
        Err(CliError::new(kind, texts.join("; ")))
    }

    fn flush_one(&self, status: &ExportStatus) -> Result<(), CliError> {
        let (export, clients) = (&status.export, status.clients);
        let name = &export.name;
        let fault = match self.server.flush(export) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(fault)) => fault,
            // That flush is known to fail.
            Err(_) if export.gate.is_latched() => Fault::Lost,
            Err(error) => {
                let text = format!(
                    "export {name:?}: could not be flushed now ({error}); that alone loses nothing: flush again, or let \
                     its clients flush"
                );
                let is_busy = clients >= export.gate.most_queues();
                let kind = if is_busy { Kind::Busy } else { Kind::Device };
                return Err(CliError::new(kind, text));
            }
        };
        let why = self.volumes.told(name, fault);
        Err(CliError::device(not_durable(name, &why)))
    }

    fn reload(&self) -> Result<Value, CliError> {
        let Some(certificates) = &self.how.certificates else {
            return Err(CliError::parameters("nothing to reload: TLS is off"));
        };
        let expiry = certificates.read().map_err(CliError::parameters)?;
        Ok(json!({ "valid_until": expiry }))
    }

    /// Growth is noticed; whoever connects from now on sees it.
    fn resize(&self, whose: &Whose) -> Result<Value, CliError> {
        let grown = |status: &ExportStatus| {
            let gate = &status.export.gate;
            let before = gate.size();
            json!({"name": status.export.name, "before": before, "size": gate.grow()})
        };
        let exports = self.meant(whose)?;
        Ok(json!({ "exports": exports.iter().map(grown).collect::<Vec<_>>() }))
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
    line_of(&Reply { error: Some(Failure::of(why)), ..Reply::default() })
}

fn line_of(reply: &Reply) -> Vec<u8> {
    // Numbers and names always are JSON.
    let mut line = serde_json::to_vec(reply).unwrap_or_default();
    line.push(b'\n');
    line
}
