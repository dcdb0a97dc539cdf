//! Cost of each front, beside those of qemu-storage-daemon under the same load.
//!
//! Every server must give the clear text, all of it, before anything is measured. Turns are short and their order rotates,
//! so whatever else the machine does meets all alike.

use clap::Args;
use cryptline::luks::format::LuksVersion;
use cryptline::size;

use crate::error::Result;
use crate::plan::{Plan, RunArgs, unique};
use crate::report::{DataDirection, LoadShape, Pattern, PlanReport, Quantity};
use crate::servers::{Contest, Door, Model, ServedContents, ServerRow, check_contents, compare, compare_with_models};
use crate::setting::{ServerPlanArgs, Setting};

/// The loads.
const SMALL: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 32);
const LARGE: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Sequential, 128 << 10, 8);
const ONE: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Random, 4096, 1);
const HUGE: LoadShape = LoadShape::new(DataDirection::Read, Pattern::Sequential, 1 << 20, 4);

/// The page cache is as qemu has it.
#[rustfmt::skip]
const SERVERS: [ServerRow; 9] = [
    ServerRow::new("cryptline, vhost-user", Door::VhostUser, ServedContents::Luks, "cryptline vhost-user --socket-path={socket} --exit-with-parent --direct=off --key-file={key} {luks2}"),
    // Any key size: the null cipher has no key.
    ServerRow::new("cryptline-plain, vhost-user", Door::VhostUser, ServedContents::Null, "cryptline vhost-user --socket-path={socket} --exit-with-parent --direct=off --type=plain --cipher=cipher_null-ecb --key-size=256 {plain}"),
    ServerRow::new("qsd, vhost-user", Door::VhostUser, ServedContents::Luks, "qemu-storage-daemon --object secret,id=key,file={key,} --blockdev driver=file,node-name=file,filename={luks1,} --blockdev driver=luks,node-name=disk,key-secret=key,file=file --export type=vhost-user-blk,addr.type=unix,addr.path={socket,},id=export,node-name=disk,writable=on"),
    ServerRow::new("cryptline, nbd", Door::Nbd, ServedContents::Luks, "cryptline serve --unix={socket} --exit-with-parent --direct=off --key-file={key} {luks2}"),
    ServerRow::new("cryptline, fuse", Door::Fuse, ServedContents::Luks, "cryptline mount --foreground --exit-with-parent --direct=off --key-file={key} {luks2} {disk}"),
    ServerRow::new("cryptline, fuse-uring", Door::FuseUring, ServedContents::Luks, "cryptline mount --foreground --fuse-uring --exit-with-parent --direct=off --key-file={key} {luks2} {disk}"),
    ServerRow::new("qsd, fuse", Door::Fuse, ServedContents::Luks, "qemu-storage-daemon --object secret,id=key,file={key,} --blockdev driver=file,node-name=file,filename={luks1,} --blockdev driver=luks,node-name=disk,key-secret=key,file=file --export type=fuse,mountpoint={disk,},id=export,node-name=disk,writable=on"),
    ServerRow::new("cryptline-plain, fuse", Door::Fuse, ServedContents::Null, "cryptline mount --foreground --exit-with-parent --direct=off --type=plain --cipher=cipher_null-ecb --key-size=256 {plain} {disk}"),
    // Those of the LUKS2 image.
    ServerRow::bare(4096),
];
/// Servers that are compared with each other under a load.
const GROUPS: [(LoadShape, &[usize]); 4] =
    [(SMALL, &[0, 1, 2, 4, 5, 6, 7, 8]), (LARGE, &[0, 1, 2, 8]), (ONE, &[0, 1, 3, 8]), (HUGE, &[4, 5, 6, 7, 8])];

#[rustfmt::skip]
const CONTESTS: [Contest; 9] = {
    const SPEED: Quantity = Quantity::Speed;
    [
        ("vhost_over_qsd_luks_4k_qd32", SMALL, "cryptline, vhost-user", &["qsd, vhost-user"], SPEED),
        ("vhost_over_qsd_luks_128k", LARGE, "cryptline, vhost-user", &["qsd, vhost-user"], SPEED),
        ("vhost_encrypted_over_plain_4k_qd32", SMALL, "cryptline, vhost-user", &["cryptline-plain, vhost-user"], SPEED),
        ("vhost_encrypted_over_plain_128k", LARGE, "cryptline, vhost-user", &["cryptline-plain, vhost-user"], SPEED),
        ("vhost_over_nbd_4k_qd1", ONE, "cryptline, vhost-user", &["cryptline, nbd"], SPEED),
        ("fuse_over_qsd_luks_4k_qd32", SMALL, "cryptline, fuse", &["qsd, fuse"], SPEED),
        ("fuse_over_qsd_luks_1m", HUGE, "cryptline, fuse", &["qsd, fuse"], SPEED),
        ("fuse_uring_over_fuse_4k_qd32", SMALL, "cryptline, fuse-uring", &["cryptline, fuse"], SPEED),
        ("fuse_uring_over_fuse_1m", HUGE, "cryptline, fuse-uring", &["cryptline, fuse"], SPEED),
    ]
};

#[rustfmt::skip]
const MODELS: [Model; 5] = [
    ("of_model_vhost_4k_qd32", SMALL, "cryptline, vhost-user", "cryptline-plain, vhost-user"),
    ("of_model_vhost_4k_qd1", ONE, "cryptline, vhost-user", "cryptline-plain, vhost-user"),
    ("of_model_vhost_128k", LARGE, "cryptline, vhost-user", "cryptline-plain, vhost-user"),
    ("of_model_fuse_4k_qd32", SMALL, "cryptline, fuse", "cryptline-plain, fuse"),
    ("of_model_fuse_1m", HUGE, "cryptline, fuse", "cryptline-plain, fuse"),
];

/// Options of the measurement.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  cryptline-bench doors                                   everything, in about a minute and a half
  cryptline-bench doors --fronts vhost-user --rounds 9    one front, for longer
  cryptline-bench doors --fronts fuse,fuse-uring          what io_uring does for a mount

Serves a LUKS2 image by cryptline and a LUKS1 image by qemu-storage-daemon, over vhost-user-blk and FUSE, and gives both \
the same reads in turns. Compares vhost-user also with the plain disk and with NBD, and with --fronts fuse,fuse-uring a \
mount with one whose requests come through io_uring. All must give the same bytes first. Three images of --size are made \
in --dir.

Needs the Debian packages fio, qemu-system-common and util-linux, and /dev/fuse; for fuse-uring, Linux 6.14 and, as root, \
echo 1 >/sys/module/fuse/parameters/enable_uring. What is missing is named, and its figures have no value.")]
pub struct DoorsArgs {
    #[command(flatten)]
    of_servers: ServerPlanArgs,

    /// Fronts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FRONT", default_values_t = [Door::VhostUser, Door::Nbd, Door::Fuse])]
    fronts: Vec<Door>,
}

/// Measures.
pub fn measure(args: &DoorsArgs, runs: RunArgs) -> Result<PlanReport> {
    let runs = runs.or(256 << 20, 5, 0.5)?;
    let setting = &Setting::of_servers(&args.of_servers, runs.size, &[LuksVersion::Luks1, LuksVersion::Luks2])?;
    let missing = |server: &ServerRow| {
        if server.has_image() && !args.fronts.contains(&server.door) {
            return Some("it was left out by --fronts".into());
        }
        let lacks = server.programs().into_iter().find_map(|name| setting.programs.missing(name));
        lacks.or_else(|| server.door.missing())
    };
    let missing: Vec<(&ServerRow, String)> = SERVERS.iter().filter_map(|it| Some((it, missing(it)?))).collect();
    let is_there = |server: &&ServerRow| !missing.iter().any(|(one, _)| one == server);
    check_contents(
        setting,
        SERVERS.iter().filter(|it| it.has_image()).filter(is_there).collect::<Vec<_>>().into_iter(),
    )?;
    let mut ways: Vec<(LoadShape, &ServerRow)> = Vec::new();
    for (load, group) in GROUPS {
        let there: Vec<&ServerRow> = group.iter().map(|&place| &SERVERS[place]).filter(is_there).collect();
        // The cipher alone is compared with nobody.
        if there.iter().any(|server| server.has_image()) {
            ways.extend(there.into_iter().map(|server| (load, server)));
        }
    }
    let plan = Plan {
        bench: "doors",
        title: "The fronts of cryptline, and those of its peer",
        medium: String::new(),
        runs,
        rows: ways.iter().map(|(load, server)| server.row(*load, setting)).collect(),
        notes: notes(setting),
    };
    let mut report = plan.run(|row, turn| ways[turn.row].1.turn(setting, row.shape, runs.time, turn.run))?;
    setting.stop.check()?;
    setting.describe(&mut report);
    let of_fronts = missing.iter().filter(|(server, _)| args.fronts.contains(&server.door));
    let why = of_fronts.map(|(_, why)| format!("{why}, so what needs it was not measured"));
    report.warnings.extend(unique(why));
    let needs = |names: &[&str]| {
        let why = missing.iter().find(|(server, _)| names.contains(&server.name));
        format!("could not be measured: {}", why.map_or("no round", |(_, why)| why))
    };
    compare_with_models(&mut report, &MODELS, |(_, _, of, plain)| needs(&[*of, *plain]));
    compare(&mut report, &CONTESTS, |(_, _, of, to, _)| needs(&[&[*of][..], *to].concat()));
    Ok(report)
}

fn notes(setting: &Setting) -> Vec<String> {
    let images = &setting.images;
    vec![
        format!(
            "cryptline serves LUKS2 (aes-xts-plain64, 512-bit key, 4096-byte sectors), qemu-storage-daemon LUKS1 (512-byte sectors), which is all it has; cryptline-plain is the null cipher over the plain file. {} of clear disk, the same bytes for all, through the page cache.",
            size::human(images.size)
        ),
        format!("Before, every server gave all bytes that were written, SHA-256 {}.", images.sha256),
        "vhost-user: libblkio's driver in this program, one virtqueue in shared memory, event indices, asleep until it is called; as a virtual machine, without its exits; the first and last 8 bytes of each read are compared. nbd: fio with libnbd, one connection. fuse: fio with io_uring and O_DIRECT on the file of the mount; fuse-uring: the same, and the server's requests come through io_uring too.".into(),
        "bare-cipher is no server but the cipher alone, on the processor of the servers, in memory that was just copied from where no cache holds it, as a server finds its data: as much at a time as is in flight, 256 KiB at most.".into(),
        setting.programs.versions(&["fio", "qemu-storage-daemon"]),
    ]
}
