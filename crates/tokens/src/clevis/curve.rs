//! Points of P-521 as JSON has them (RFC 7517 and 7518), and what two of them agree on.

use base64ct::{Base64UrlUnpadded, Encoding};
use cryptline::SecretBuf;
use p521::elliptic_curve::sec1::ToSec1Point;
use p521::{ProjectivePoint, PublicKey, SecretKey};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Bytes of a coordinate.
pub const COORDINATE: usize = 66;

/// A point of the curve that is not at infinity.
#[derive(Clone, PartialEq)]
pub struct CurvePoint(PublicKey);

impl CurvePoint {
    /// A key that is such a point; not one beside the curve, from which the answer would tell parts of a secret.
    pub fn of_jwk(jwk: &Value) -> Result<Self, &'static str> {
        if jwk["kty"] != "EC" || jwk["crv"] != "P-521" {
            return Err("its key is not of the curve P-521");
        }
        let mut bytes = [4; 1 + 2 * COORDINATE];
        let (x, y) = bytes[1..].split_at_mut(COORDINATE);
        for (name, place) in [("x", x), ("y", y)] {
            let text = jwk[name].as_str().unwrap_or_default();
            match Base64UrlUnpadded::decode(text, place) {
                Ok(decoded) if decoded.len() == COORDINATE => {}
                _ => return Err("its key has no such coordinate"),
            }
        }
        let point = PublicKey::from_sec1_bytes(&bytes);
        point.map(Self).map_err(|_| "its key is no point of the curve")
    }

    pub fn to_jwk(&self, algorithm: Option<&str>) -> Value {
        let (x, y) = self.coordinates();
        let mut jwk = json!({"crv": "P-521", "kty": "EC", "x": x, "y": y});
        if let Some(algorithm) = algorithm {
            jwk["alg"] = algorithm.into();
        }
        jwk
    }

    /// Uncompressed, as other programs have it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_sec1_point(false).as_bytes().to_vec()
    }

    fn coordinates(&self) -> (String, String) {
        let bytes = self.to_bytes();
        let (x, y) = bytes[1..].split_at(COORDINATE);
        (Base64UrlUnpadded::encode_string(x), Base64UrlUnpadded::encode_string(y))
    }

    /// Returns the name of the key (RFC 7638).
    pub fn thumbprint(&self) -> String {
        let (x, y) = self.coordinates();
        let text = format!(r#"{{"crv":"P-521","kty":"EC","x":"{x}","y":"{y}"}}"#);
        Base64UrlUnpadded::encode_string(&Sha256::digest(text))
    }

    /// The same by the hash of old servers.
    pub fn old_thumbprint(&self) -> String {
        let (x, y) = self.coordinates();
        let text = format!(r#"{{"crv":"P-521","kty":"EC","x":"{x}","y":"{y}"}}"#);
        Base64UrlUnpadded::encode_string(&sha1::Sha1::digest(text))
    }

    fn of(point: ProjectivePoint) -> Option<Self> {
        PublicKey::from_affine(point.to_affine()).ok().map(Self)
    }

    pub fn plus(&self, other: &Self) -> Option<Self> {
        Self::of(self.0.to_projective() + other.0.to_projective())
    }

    pub fn minus(&self, other: &Self) -> Option<Self> {
        Self::of(self.0.to_projective() - other.0.to_projective())
    }

    /// The first coordinate, of a point that nobody else knows.
    pub fn secret(&self) -> Result<SecretBuf, String> {
        let point = self.0.to_sec1_point(false);
        SecretBuf::copy_of(&point.as_bytes()[1..=COORDINATE]).map_err(|error| error.to_string())
    }
}

/// A number that nobody else knows.
pub struct SecretNumber(SecretKey);

impl SecretNumber {
    pub fn random() -> Result<Self, String> {
        loop {
            let mut bytes = SecretBuf::random(COORDINATE).map_err(|error| error.to_string())?;
            bytes[0] &= 1;
            // Hardly ever more than the order of the curve.
            if let Ok(secret) = SecretKey::from_slice(&bytes) {
                return Ok(Self(secret));
            }
        }
    }

    /// So many times the generator.
    pub fn point(&self) -> CurvePoint {
        CurvePoint(self.0.public_key())
    }

    /// So many times a point.
    pub fn times(&self, point: &CurvePoint) -> Option<CurvePoint> {
        CurvePoint::of(point.0.to_projective() * *self.0.to_nonzero_scalar())
    }
}
