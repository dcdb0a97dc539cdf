//! The life of a volume without any privilege: as uid 65534 in a user namespace whose /dev has no device but null, zero
//! and urandom.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use crate::common::Folder;
use crate::lab::tang::Tang;
use cryptline_testkit::peer;

/// Script of what every verb does there, and what must come out of it.
const LIFE: &str = r#"
set -eu; umask 077
test "$(id -u)" = 65534
test ! -e /dev/loop-control && test ! -e /dev/mapper
cheap='--pbkdf=pbkdf2 --pbkdf-force-iterations=1000'
dd if=/dev/urandom of=raw bs=1M count=4 status=none
printf one > one; printf two > two; printf three > three

c create empty --size 20M --key-file one $cheap
c create disk --from raw --key-file one $cheap --verify
c copy disk out --key-file one
cmp raw out
c encrypt raw again --key-file one $cheap
c copy again out2 --key-file one
cmp raw out2
mkdir folder && printf text > folder/file
c create site --from dir:folder --key-file one $cheap
# What cannot be read is in no copy that passes for whole.
for made in folder/shut folder/shut.txt; do
  case $made in *.txt) : > $made;; *) mkdir $made;; esac
  chmod 0 $made
  if c create part --from dir:folder --key-file one $cheap 2> why; then exit 1; fi
  grep -q 'dir:folder.*ermission denied' why
  test "$(wc -l < why)" = 1 && test ! -e part && test -z "$(ls -A | grep '^\.cryptline')"
  chmod 700 $made && rm -r $made
done

c key add disk --key-file one --new-key-file two $cheap
c key change disk --key-file two --new-key-file three $cheap
c key list disk > slots
c key convert disk --key-file three --pbkdf=argon2id --pbkdf-memory=32 --pbkdf-force-iterations=4
c key priority disk 1 prefer
c key remove disk --key-file three -q
c token add disk --key-description cryptline:test --key-slot 0
c token list disk > tokens
c token remove disk --token-id 0
c header backup disk --file saved
c header label disk --label name
c header restore disk --file saved -q
c create old --from raw --type luks1 --key-file one --pbkdf-force-iterations=1000
c header convert old --to luks2
c copy old out3 --key-file one
cmp raw out3

refused() { want=$1; shift; got=0; "$@" > said 2> why < /dev/null || got=$?
  test $got = $want && test "$(wc -l < why)" = 1 || { echo "$*: $got" >&2; cat why >&2; exit 1; }; }
cp disk still
refused 2 c key add disk --key-file two --new-key-file three $cheap
refused 1 c key kill disk 7 -q
refused 1 c key remove disk --key-file one
refused 1 c erase disk
refused 1 c header restore disk --file saved
refused 5 c header backup disk --file saved
refused 1 c token remove disk --token-id 7
refused 4 c token bind disk tang http://127.0.0.1:1 --key-file one -q
refused 4 c token bind disk tpm2 --key-file one
refused 4 c key list raw
cmp disk still

cp raw data
c create data --size 4M --header head --key-file one $cheap
c key add data --header head --key-file one --new-key-file two $cheap
c key change data --header head --key-file two --new-key-file three $cheap
c key kill data 0 --header head --key-file three
c header backup data --header head --file saved2
c header label data --header head --label apart
c header restore data --header head --file saved2 -q
c open --check data --header head --key-file three
c key list data --header head > slots

c key add disk --key-file one --recovery > key.txt
tail -n 1 key.txt | c open --check disk > opened
if test -n "${TANG-}"; then
  c token bind disk tang "$TANG" --key-file one -q
  c open --check disk --token-type clevis --token-only
  c token bind disk sss "{\"t\": 2, \"pins\": {\"tang\": [{\"url\": \"$TANG\"}, {\"url\": \"$TANG\"}]}}" --key-file one -q
  c open --check disk --token-id 2 --token-only
fi

if (trap '' XFSZ; ulimit -f 4096; c copy disk part --key-file one --resume) 2> why; then exit 1; fi
c copy disk part --key-file one --resume
cmp raw part

c resize disk 24M
c copy disk larger --key-file one
cmp -n 4194304 raw larger
c serve disk --key-file one --run 'nbdcopy "$uri" served'
cmp -n 4194304 raw served
c erase disk -q
if c open --check disk --key-file one 2> why; then exit 1; fi
echo whole
"#;

/// Around it: a /dev of its own, and then no privilege even in the namespace.
const WITHOUT: &str = r#"
mkdir dev && mount -t tmpfs none dev || exit 99
for node in null zero urandom; do : > dev/$node; mount --bind /dev/$node dev/$node || exit 99; done
mount --rbind dev /dev || exit 99
exec unshare --user --map-user=65534 --map-group=65534 sh "$1"
"#;

#[test]
fn whole_life_of_a_volume_needs_no_privilege_and_no_device() {
    let programs = ["setpriv", "unshare", "nbdcopy", "mkfs.ext4"];
    let Some([setpriv, ..]) = peer::require_all(programs) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    // Where the program was built, nobody may look.
    let program = fs::read(env!("CARGO_BIN_EXE_cryptline")).unwrap();
    write("c", &program);
    let life = write("life", LIFE.as_bytes());
    let without = write("without", WITHOUT.as_bytes());
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command: Command = setpriv.command();
    if rustix::process::geteuid().is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command
        .args(["unshare", "--user", "--map-root-user", "--mount", "sh"])
        .args([&without, &life])
        .env_clear()
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .current_dir(folder.path());
    // Its server has other privileges, and needs them no more than here.
    let keys = Folder::new();
    let tang = Tang::new(&keys);
    if let Some(tang) = &tang {
        command.env("TANG", &tang.url);
    }
    let run = peer::run(&mut command, Duration::from_secs(180));
    if run.status.code() == Some(99) || run.stderr_text().contains("unshare failed") {
        return peer::skip("users may make no namespaces here");
    }
    assert!(run.success().stdout_text().ends_with("whole\n"));
}
