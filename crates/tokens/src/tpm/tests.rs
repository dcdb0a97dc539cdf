//! Remains in a TPM that does not play along.

use std::collections::HashMap;

use ring::agreement::{ECDH_P256, EphemeralPrivateKey};
use ring::rand::SystemRandom;
use serde_json::json;

use super::*;
use wire::{ALG_AES, ALG_CFB, ALG_ECC, ALG_NULL, CURVE_P256, CommandWriter};

const CREATE_PRIMARY: u32 = 0x131;
const LOAD: u32 = 0x157;
const FLUSH_CONTEXT: u32 = 0x165;
const START_AUTH_SESSION: u32 = 0x176;
const POLICY_PCR: u32 = 0x17f;
const PCR_CHANGED: u32 = 0x128;

/// Loads what it is given, with numbers from 1 on, and then its registers have changed.
#[derive(Default)]
struct Fickle {
    loaded: HashMap<u32, u32>,
    last: u32,
    /// How many were there when a key was made.
    found: Vec<usize>,
}

impl TpmLink for Fickle {
    fn exchange(&mut self, command: &[u8], deadline: Instant) -> Result<Vec<u8>, String> {
        let mut reader = wire::ResponseReader(command);
        let (tag, _len, code) = (reader.u16().unwrap(), reader.u32(), reader.u32().unwrap());
        let body = match code {
            FLUSH_CONTEXT => {
                assert!(deadline > Instant::now());
                self.loaded.remove(&reader.u32().unwrap()).unwrap();
                CommandWriter::default()
            }
            POLICY_PCR => return Ok(answer(tag, PCR_CHANGED, &[])),
            code => {
                if code == CREATE_PRIMARY {
                    self.found.push(self.loaded.len());
                }
                self.last += 1;
                self.loaded.insert(self.last, code);
                let handle = CommandWriter::default().u32(self.last);
                match code {
                    CREATE_PRIMARY => {
                        let key = CommandWriter::default().sized(&key()).0;
                        handle.u32(key.len().try_into().unwrap()).bytes(&key)
                    }
                    START_AUTH_SESSION => handle.sized(&[7; 32]),
                    LOAD => handle,
                    other => panic!("{other:#x}"),
                }
            }
        };
        Ok(answer(tag, 0, &body.0))
    }
}

fn answer(tag: u16, code: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(wire::HEADER + body.len()).unwrap();
    CommandWriter::default().u16(tag).u32(len).u32(code).bytes(body).0
}

/// The public area of a key for ECDH.
fn key() -> Vec<u8> {
    let random = SystemRandom::new();
    let key = EphemeralPrivateKey::generate(&ECDH_P256, &random).unwrap();
    let public = key.compute_public_key().unwrap();
    let (x, y) = public.as_ref()[1..].split_at(32);
    let area = CommandWriter::default().u16(ALG_ECC).u16(ALG_SHA256).u32(0);
    let area = area.sized(&[]).u16(ALG_AES).u16(128).u16(ALG_CFB);
    let area = area.u16(ALG_NULL).u16(CURVE_P256).u16(ALG_NULL);
    area.sized(x).sized(y).0
}

fn token() -> TpmToken {
    let token = json!({"tpm2-blob": "AAFwAAJQVQ==", "tpm2-pcrs": [7]});
    TpmToken::parse(&token).ok().unwrap()
}

#[test]
fn nothing_is_left_between_attempts_and_behind_the_last() {
    let mut tpm = Fickle::default();
    let refused = open(&token(), &mut tpm, Instant::now() + PATIENCE, None);
    let why = refused.err().unwrap().why();
    assert!(why.contains("0x128"), "{why}");
    assert_eq!(tpm.found, [0; ATTEMPTS]);
    assert!(tpm.loaded.is_empty());
}

#[test]
fn what_was_loaded_in_time_is_flushed_behind_the_deadline() {
    let mut line = Fickle::default();
    let mut tpm = Tpm::new(&mut line, Instant::now());
    let loaded = tpm.create_primary(PrimaryKind::Ecc);
    assert!(loaded.is_ok());
    drop(tpm);
    assert!(line.found == [0] && line.loaded.is_empty());
}
