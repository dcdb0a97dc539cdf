//! Volumes enrolled with a TPM: systemd opens what is bound here, and the other way round. The TPM is swtpm's.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use crate::lab::Lab;
use base64ct::{Base64, Encoding};
use cryptline_testkit::peer::{self, BackgroundProgram, Peer, Run, TIMEOUT_DEFAULT, run};
use serde_json::{Value, json};

/// Program that prints what libcryptsetup's token of systemd says of a volume: the key slot, or a negative number.
const PLUGIN: &str = r#"
import ctypes, sys
class Params(ctypes.Structure):
    _fields_ = [("pcrs", ctypes.c_uint32), ("device", ctypes.c_char_p), ("signature", ctypes.c_char_p)]
disk, device, token, pin = [word.encode() for word in sys.argv[1:]]
lib, volume = ctypes.CDLL("libcryptsetup.so.12"), ctypes.c_void_p()
assert lib.crypt_init(ctypes.byref(volume), disk) == 0
assert lib.crypt_load(volume, b"LUKS2", None) == 0
params = ctypes.byref(Params(0xffffffff, device, None))
size = ctypes.c_size_t(len(pin))
print(lib.crypt_activate_by_token_pin(volume, None, b"systemd-tpm2", int(token), pin or None, size, params, 0))
"#;

/// A TPM of its own, in whose register 7 something has been measured.
struct Swtpm {
    _server: BackgroundProgram,
    socket: String,
    tools: Peer,
}

impl Swtpm {
    fn new(folder: &Path) -> Option<Self> {
        let [swtpm, tools] = peer::require_all(["swtpm", "tpm2_flushcontext"])?;
        peer::require("libtss2-tcti-swtpm0")?;
        fs::create_dir(folder).unwrap();
        let tpm = Self::started(folder, &swtpm, tools);
        tpm.measure();
        Some(tpm)
    }

    /// The same after a power cycle.
    fn restarted(self, folder: &Path) -> Option<Self> {
        let swtpm = peer::require("swtpm")?;
        let tools = self.tools.clone();
        drop(self);
        Some(Self::started(folder, &swtpm, tools))
    }

    fn started(folder: &Path, swtpm: &Peer, tools: Peer) -> Self {
        let socket = folder.join("tpm");
        let at = |path: &Path| format!("type=unixio,path={}", path.display());
        for left in [&socket, &folder.join("tpm.ctrl")] {
            let _ = fs::remove_file(left);
        }
        let mut command = swtpm.command();
        command.args(["socket", "--tpm2", "--tpmstate"]);
        command.arg(format!("dir={}", folder.display()));
        // tpm2-tss finds the second by the name of the first.
        command.args(["--server", &at(&socket)]);
        command.args(["--ctrl", &at(&folder.join("tpm.ctrl"))]);
        command.args(["--flags", "not-need-init,startup-clear"]);
        let server = BackgroundProgram::spawn(&mut command).wait_for_socket(&socket, TIMEOUT_DEFAULT);
        Self { _server: server, socket: socket.to_str().unwrap().to_owned(), tools }
    }

    fn place(&self) -> String {
        format!("swtpm:path={}", self.socket)
    }

    fn option(&self) -> String {
        format!("--tpm-device={}", self.place())
    }

    /// One of tpm2-tools.
    fn tool(&self, name: &str, arguments: &[&str]) -> Run {
        let mut tool = Command::new(self.tools.path().with_file_name(name));
        tool.env("TPM2TOOLS_TCTI", self.place());
        tool.current_dir(Path::new(&self.socket).parent().unwrap());
        run(tool.args(arguments), TIMEOUT_DEFAULT).success()
    }

    /// Changes register 7.
    fn measure(&self) {
        let digest = format!("7:sha256={}", "5a".repeat(32));
        self.tool("tpm2_pcrextend", &[&digest]);
    }

    /// Flushes what other programs leave in it, without a resource manager.
    fn tidy(&self) {
        for what in ["-l", "-s", "-t"] {
            self.tool("tpm2_flushcontext", &[what]);
        }
    }

    fn enrol(&self, lab: &Lab, pcrs: &str, pin: &str) -> Option<()> {
        let cryptenroll = peer::require("systemd-cryptenroll")?;
        let mut command = cryptenroll.command();
        command.arg(format!("--unlock-key-file={}", lab.folder.key().display()));
        command.arg(format!("--tpm2-device={}", self.place()));
        command.arg(format!("--tpm2-pcrs={pcrs}")).arg(&lab.disk);
        let pinned = if pin.is_empty() { "no" } else { "yes" };
        command.arg(format!("--tpm2-with-pin={pinned}")).env("NEWPIN", pin);
        run(&mut command, TIMEOUT_DEFAULT).success();
        self.tidy();
        Some(())
    }

    /// The key slot that systemd opens by this token.
    fn opens_with_systemd(&self, lab: &Lab, token: &str, pin: &str) -> Option<String> {
        let python = peer::require("python3")?;
        let disk = lab.disk.to_str().unwrap();
        let opened = python.run(["-c", PLUGIN, disk, &self.place(), token, pin]);
        self.tidy();
        Some(opened.success().stdout_text().trim().to_owned())
    }

    fn open(&self, lab: &Lab, options: &[&str]) -> Run {
        let option = self.option();
        let options = [&["--token-only", &*option], options].concat();
        lab.ours(&["open", "--check"], &options)
    }

    #[track_caller]
    fn opens(&self, lab: &Lab, slot: u32, options: &[&str]) {
        let opened = self.open(lab, options).success();
        let expected = format!("Key slot {slot} unlocked.\n");
        assert_eq!(opened.stdout_text(), expected, "{opened}");
    }
}

#[test]
fn what_systemd_has_enrolled_opens_here_while_the_tpm_is_as_it_was() {
    let Some(lab) = Lab::new() else { return };
    let Some(tpm) = Swtpm::new(&lab.folder.path("tpm")) else {
        return;
    };
    if tpm.enrol(&lab, "7", "").is_none() {
        return;
    }
    tpm.enrol(&lab, "", "1234");
    let listed = lab.ours(&["token", "list"], &[]).success().stdout_text();
    assert!(listed.contains("0  systemd-tpm2, key slot 1\n"), "{listed}");
    // Nothing stays in the TPM, which has room for three keys.
    for _ in 0..4 {
        tpm.opens(&lab, 1, &[]);
    }
    let pin = format!("--pin-file={}", lab.file("pin", "1234\n"));
    tpm.opens(&lab, 2, &["--token-id=1", &pin]);
    let typed = ["--token-only", "--token-id=1", &tpm.option()];
    let typed = lab.ours_reading(&["open", "--check"], &typed, "1234\n");
    assert_eq!(typed.success().stdout_text(), "Key slot 2 unlocked.\n");
    tpm.measure();
    // Who is asked for a passphrase is not asked for a PIN.
    let asked = lab.ours_reading(&["open", "--check"], &[&tpm.option()], "x");
    let asked = asked.exited_with(2).stderr_text();
    assert!(asked.contains("skipping token 0"), "{asked}");
    assert!(!asked.contains("token 1"), "{asked}");
    refused(tpm.open(&lab, &["--token-id=0"]), 2, "(PCR 7) have other values");
    tpm.opens(&lab, 2, &[&pin]);
    let wrong = format!("--pin-file={}", lab.file("wrong", "4321"));
    refused(tpm.open(&lab, &["--token-id=1", &wrong]), 2, "the PIN is wrong");
    tpm.opens(&lab, 2, &["--token-id=1", &pin]);
    // Three wrong ones are too many for this TPM.
    for _ in 0..2 {
        refused(tpm.open(&lab, &["--token-id=1", &wrong]), 2, "");
    }
    refused(tpm.open(&lab, &["--token-id=1", &pin]), 2, "locked");
    let Some(other) = Swtpm::new(&lab.folder.path("other")) else {
        return;
    };
    refused(other.open(&lab, &["--token-id=0"]), 2, "another TPM");
    let none = lab.ours(&["open", "--check"], &["--token-only", "--tpm-device=/no/such"]);
    refused(none, 2, "/no/such cannot be opened");
}

#[test]
fn what_is_bound_here_opens_with_systemd() {
    let Some(lab) = Lab::new() else { return };
    let Some(tpm) = Swtpm::new(&lab.folder.path("tpm")) else {
        return;
    };
    let key = format!("--key-file={}", lab.folder.key().display());
    let pin = format!("--new-pin-file={}", lab.file("pin", "1234\n"));
    let bind = |options: &[&str]| {
        let option = tpm.option();
        let options = [&["tpm2", &*key, &*option], options].concat();
        lab.ours(&["token", "bind"], &options)
    };
    let bound = bind(&[]).success().stdout_text();
    assert!(bound.starts_with("Token 0 opens key slot 1 with"), "{bound}");
    let bound = bind(&["--with-pin", &pin, "--pcrs=0+7"]).success();
    let warned = bound.stderr_text();
    assert!(warned.contains("nothing was measured into PCR 0 of"), "{warned}");
    let bound = bind(&["--pcrs=", "--new-key-slot=5"]).success();
    let warned = bound.stderr_text();
    assert!(warned.contains("whoever has this machine"), "{warned}");
    let passed = |token, pin| tpm.opens_with_systemd(&lab, token, pin);
    assert_eq!(passed("0", "").as_deref(), Some("1"));
    assert_eq!(passed("1", "1234").as_deref(), Some("2"));
    assert_eq!(passed("2", "").as_deref(), Some("5"));
    tpm.opens(&lab, 1, &[]);
    tpm.opens(&lab, 2, &["--token-id=1", &format!("--pin-file={}", lab.file("pin", "1234"))]);
    if tpm.enrol(&lab, "0+7", "").is_some() {
        let tokens = lab.tokens();
        let members = |token: &str| tokens[token].as_object().unwrap().keys().collect::<Vec<_>>();
        assert_eq!(members("0"), members("3"));
        let of_both = ["tpm2-policy-hash", "tpm2-pcrs", "tpm2-pcr-bank", "tpm2-primary-alg"];
        bind(&["--pcrs=7,0"]).success();
        let tokens = lab.tokens();
        for member in of_both {
            assert_eq!(tokens["4"][member], tokens["3"][member], "{member}");
        }
    }
    binds_nothing(&lab, &tpm, &key, &bind);
}

/// Verifies that what cannot be bound leaves the header as it is.
fn binds_nothing(lab: &Lab, tpm: &Swtpm, key: &str, bind: &dyn Fn(&[&str]) -> Run) {
    let before = fs::read(&lab.disk).unwrap();
    refused(bind(&["http://tang"]), 1, "no URL");
    let none = ["tpm2", key, "--tpm-device=/no/such"];
    refused(lab.ours(&["token", "bind"], &none), 4, "cannot be opened");
    let tang = ["tang", "http://tang", "--pcrs=7", key];
    refused(lab.ours(&["token", "bind"], &tang), 1, "leave them out");
    let option = tpm.option();
    let from_input = ["tpm2", "--with-pin", "--new-pin-file=-", &option];
    let from_input = lab.ours_reading(&["token", "bind"], &from_input, "both");
    refused(from_input, 1, "cannot be both the passphrase and the PIN");
    let empty = ["tpm2", "--with-pin", key, &option];
    let empty = lab.ours_reading(&["token", "bind"], &empty, "\n");
    refused(empty, 4, "the PIN is empty");
    // What is wrong then is not the PIN.
    tpm.tool("tpm2_changeauth", &["-c", "owner", "of the owner"]);
    let pin = format!("--pin-file={}", lab.file("pin", "1234"));
    refused(tpm.open(lab, &["--token-id=1", &pin]), 2, "owner hierarchy");
    refused(bind(&[]), 4, "owner hierarchy");
    assert!(fs::read(&lab.disk).unwrap() == before);
}

#[test]
fn registers_that_a_tpm_does_not_have_bind_nothing() {
    let Some(lab) = Lab::new() else { return };
    let folder = lab.folder.path("tpm");
    let Some(tpm) = Swtpm::new(&folder) else {
        return;
    };
    tpm.tool("tpm2_pcrallocate", &["sha1:all+sha256:none"]);
    let Some(tpm) = tpm.restarted(&folder) else {
        return;
    };
    let before = fs::read(&lab.disk).unwrap();
    let key = format!("--key-file={}", lab.folder.key().display());
    let bind = ["tpm2", &*key, &tpm.option(), "--pcrs=7+11"];
    let bound = lab.ours(&["token", "bind"], &bind);
    refused(bound, 4, "no PCR 7+11 in the bank sha256");
    assert!(fs::read(&lab.disk).unwrap() == before);
}

#[test]
fn pin_is_asked_for_once_per_token_and_a_wrong_one_counts_once() {
    let Some(lab) = Lab::new() else { return };
    let Some(tpm) = Swtpm::new(&lab.folder.path("tpm")) else {
        return;
    };
    let pin = lab.file("pin", "1234");
    let new_pin = format!("--new-pin-file={pin}");
    let key = format!("--key-file={}", lab.folder.key().display());
    let option = tpm.option();
    let bind = ["tpm2", &*key, &option, "--with-pin", &new_pin];
    lab.ours(&["token", "bind"], &bind).success();
    let import = |id: u32, token: &Value| {
        let file = format!("--json-file={}", lab.file("token", &token.to_string()));
        let options = [&*file, &format!("--token-id={id}"), "--token-replace"];
        let options = if id == 0 { &options[..] } else { &options[..2] };
        lab.ours(&["token", "import"], options).success();
    };
    let bound = lab.tokens()["0"].clone();
    let reading = |options: &[&str], input: &str| {
        let options = [&["--token-only", &*option], options].concat();
        let opened = lab.ours_reading(&["open", "--check"], &options, input);
        assert_eq!(opened.success().stdout_text(), "Key slot 1 unlocked.\n");
    };
    // It is tried on a preferred key slot first, which has another passphrase.
    lab.add("another", 2);
    lab.theirs(&["config"], &["--priority=prefer", "--key-slot=2"]).success();
    let mut both = bound.clone();
    both["keyslots"] = json!(["1", "2"]);
    import(0, &both);
    reading(&[], "1234\n");
    // One that another TPM has made does not use up what can be read once.
    let mut foreign = bound.clone();
    let blob = bound["tpm2-blob"].as_str().unwrap();
    let mut blob = Base64::decode_vec(blob).unwrap();
    blob[10] ^= 1;
    foreign["tpm2-blob"] = Base64::encode_string(&blob).into();
    import(0, &foreign);
    for id in 1..=3 {
        import(id, &bound);
    }
    reading(&["--pin-file=-"], "1234\n");
    // Three wrong ones would lock the TPM.
    let wrong = format!("--pin-file={}", lab.file("wrong", "4321"));
    refused(tpm.open(&lab, &[&wrong]), 2, "counted a failure before");
    let pin = format!("--pin-file={pin}");
    tpm.opens(&lab, 1, &["--token-id=3", &pin]);
}

/// An empty PIN opens no token, so the TPM is not asked: a few failures lock it.
#[test]
fn token_whose_pin_nobody_types_is_passed_over_and_an_empty_pin_is_no_try() {
    let Some(lab) = Lab::new() else { return };
    let Some(tpm) = Swtpm::new(&lab.folder.path("tpm")) else {
        return;
    };
    let (key, option) = (format!("--key-file={}", lab.folder.key().display()), tpm.option());
    let new_pin = format!("--new-pin-file={}", lab.file("pin", "1234"));
    lab.ours(&["token", "bind"], &["tpm2", &*key, &option, "--with-pin", &new_pin]).success();
    refused(tpm.open(&lab, &[]), 2, "token 0: it wants a PIN, and there is nobody to ask for it");
    lab.ours(&["token", "bind"], &["tpm2", &*key, &option]).success();
    tpm.opens(&lab, 2, &[]);
    let named = ["--token-only", &*option, "--token-id=0"];
    for _ in 0..5 {
        refused(lab.ours_reading(&["open", "--check"], &named, "\n"), 2, "the PIN is empty");
    }
    let opened = lab.ours_reading(&["open", "--check"], &named, "1234\n");
    assert_eq!(opened.success().stdout_text(), "Key slot 1 unlocked.\n");
}

#[test]
fn key_that_a_secret_lies_under_may_be_of_rsa_or_stay_in_the_tpm() {
    let Some(lab) = Lab::new() else { return };
    let Some(tpm) = Swtpm::new(&lab.folder.path("tpm")) else {
        return;
    };
    let folder = lab.folder.path("tpm");
    tpm.tool("tpm2_createprimary", &["-C", "o", "-G", "rsa2048:aes128cfb", "-c", "primary"]);
    tpm.tool("tpm2_createpolicy", &["--policy-pcr", "-l", "sha256:7", "-L", "policy"]);
    fs::write(folder.join("secret"), b"of the TPM").unwrap();
    let create = ["-C", "primary", "-L", "policy", "-i", "secret", "-u", "public", "-r", "private"];
    tpm.tool("tpm2_create", &[&create[..], &["-a", "fixedtpm|fixedparent"]].concat());
    tpm.tidy();
    let bytes = |name: &str| fs::read(folder.join(name)).unwrap();
    let blob = [bytes("private"), bytes("public")].concat();
    let policy: String = bytes("policy").iter().map(|byte| format!("{byte:02x}")).collect();
    lab.add(&Base64::encode_string(b"of the TPM"), 3);
    let import = |token: &Value| {
        let file = format!("--json-file={}", lab.file("token", &token.to_string()));
        lab.ours(&["token", "import"], &[&file, "--token-id=0", "--token-replace"]).success();
    };
    let mut token = json!({
        "type": "systemd-tpm2",
        "keyslots": ["3"],
        "tpm2-blob": Base64::encode_string(&blob),
        "tpm2-pcrs": [7],
        "tpm2-primary-alg": "rsa",
        "tpm2-policy-hash": policy,
    });
    let empty = json!({"type": "systemd-tpm2", "keyslots": []});
    let file = format!("--json-file={}", lab.file("token", &empty.to_string()));
    lab.ours(&["token", "import"], &[&file]).success();
    import(&token);
    tpm.opens(&lab, 3, &[]);
    tpm.tool("tpm2_evictcontrol", &["-C", "o", "-c", "primary", "0x81000001"]);
    tpm.tool("tpm2_readpublic", &["-c", "0x81000001", "-t", "handle"]);
    tpm.tidy();
    let mut handle = bytes("handle");
    token["tpm2-primary-alg"] = "ecc".into();
    token["tpm2_srk"] = Base64::encode_string(&handle).into();
    import(&token);
    tpm.opens(&lab, 3, &[]);
    // The name of another key, behind handle, length and the kind of the name.
    handle[8] ^= 1;
    token["tpm2_srk"] = Base64::encode_string(&handle).into();
    import(&token);
    refused(tpm.open(&lab, &[]), 2, "another TPM");
    token["tpm2_pcrlock"] = true.into();
    import(&token);
    refused(tpm.open(&lab, &[]), 2, "systemd-pcrlock");
}
