//! Why a file holds no private key that can be used.

/// Kinds of keys that are accepted.
pub const SUPPORTED: &str = "use an RSA key of 2048 to 8192 bits, an ECDSA key on P-256 or P-384, or an Ed25519 key";

/// First byte of a DER sequence, as keys and certificates begin. The digit 0 in a text.
const DER: u8 = 0x30;

/// Recognises what people put there instead, and tells what to do about it.
pub fn obstacle(file: &[u8]) -> Option<&'static str> {
    // Where it lies: a copy would have to be wiped.
    let says = |text: &str| file.windows(text.len()).any(|part| part == text.as_bytes());
    let has = |label: &str| says(&format!("-----BEGIN {label}-----"));
    let is_key = has("PRIVATE KEY") || has("RSA PRIVATE KEY") || has("EC PRIVATE KEY");
    if has("ENCRYPTED PRIVATE KEY") || says("Proc-Type: 4,ENCRYPTED") {
        Some(
            "it is encrypted, and there is nobody to ask for the passphrase; decrypt it with `openssl pkey -in OLD -out NEW`, and let only this program read it",
        )
    } else if is_key {
        None
    } else if has("OPENSSH PRIVATE KEY") {
        Some("it is an OpenSSH key; convert it with `ssh-keygen -p -m PKCS8 -f FILE`")
    } else if has("DSA PRIVATE KEY") {
        Some("it is a DSA key, which TLS does not use any more; make one with `openssl genpkey -algorithm ED25519`")
    } else if has("CERTIFICATE") {
        Some("this is a certificate, not a private key; are the two files swapped?")
    } else if has("PUBLIC KEY") {
        Some("this is a public key; use the private one")
    } else if file.first() == Some(&DER) && std::str::from_utf8(file).is_err() {
        Some("it is in DER form; convert it with `openssl pkey -inform DER -in OLD -out NEW`")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_usable_key_is_told_apart() {
        let pem = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n");
        for (file, why) in [
            (pem("ENCRYPTED PRIVATE KEY"), "openssl pkey -in"),
            (pem("RSA PRIVATE KEY").replace("AAAA", "Proc-Type: 4,ENCRYPTED\n\nAAAA"), "openssl pkey -in"),
            (pem("OPENSSH PRIVATE KEY"), "ssh-keygen"),
            (pem("DSA PRIVATE KEY"), "DSA"),
            (pem("CERTIFICATE"), "swapped"),
            (pem("PUBLIC KEY"), "public key"),
        ] {
            let said = obstacle(file.as_bytes());
            assert!(said.is_some_and(|said| said.contains(why)), "{file}: {said:?}");
        }
        assert!(obstacle(&[0x30, 0x77, 1, 0xff]).is_some_and(|said| said.contains("DER")));
        assert_eq!(obstacle(b"0 is no key"), None);
        for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
            let with_certificate = pem("CERTIFICATE") + &pem(label);
            assert_eq!(obstacle(with_certificate.as_bytes()), None);
        }
        assert_eq!(obstacle(b""), None);
    }
}
