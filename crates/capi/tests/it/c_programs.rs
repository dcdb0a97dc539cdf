//! Programs in C against the installed library: those of `examples/`, and one that makes every call.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cryptline_testkit::nudged::Nudged;
use cryptline_testkit::peer::{self, BackgroundProgram, Run, run, run_with_input};
use tempfile::TempDir;

/// A debug build under valgrind takes its time.
const PATIENCE: Duration = Duration::from_secs(1000);
const PHRASE: &str = "pass phrase";

/// The library, installed in a folder of its own.
struct Installed {
    folder: TempDir,
}

fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Cargo leaves the libraries beside the test.
        let test = std::env::current_exe().unwrap();
        let mut install = Command::new(crate_path("install.sh"));
        install.arg(test.parent().unwrap());
        run(install.env("PREFIX", folder.path()), PATIENCE).success();
        Self { folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Flags that pkg-config names.
    fn flags(&self, pkg_config: &peer::Peer, arguments: &[&str]) -> Vec<String> {
        let mut command = pkg_config.command();
        command.args(arguments).arg("cryptline");
        command.env("PKG_CONFIG_PATH", self.path("lib/pkgconfig"));
        let said = run(&mut command, PATIENCE).success().stdout_text();
        said.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program, which finds the shared library at run time.
    fn compile(&self, source: &str, name: &str) -> Option<PathBuf> {
        let [cc, pkg_config] = peer::require_all(["cc", "pkg-config"])?;
        let program = self.path(name);
        let mut command = cc.command();
        command
            .args(["-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .arg(crate_path(source))
            .args(self.flags(&pkg_config, &["--cflags", "--libs"]))
            .arg(format!("-Wl,-rpath,{}", self.path("lib").display()))
            .args(["-pthread", "-o"])
            .arg(&program);
        run(&mut command, PATIENCE).success();
        Some(program)
    }

    /// An image that cryptsetup has made, with pages of its own in it.
    fn image(&self, version: &str, phrase: &str) -> Option<PathBuf> {
        let cryptsetup = peer::require("cryptsetup")?;
        let path = self.path("disk.img");
        std::fs::File::create(&path).unwrap().set_len(24 << 20).unwrap();
        let mut format = cryptsetup.command();
        format
            .args(["luksFormat", "--batch-mode", "--key-file=-", "--type", version])
            .args(["--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000"])
            .arg(&path);
        run_with_input(&mut format, PATIENCE, phrase.as_bytes()).success();
        Some(path)
    }
}

fn run_program(program: &Path, arguments: &[&Path]) -> Run {
    run(Command::new(program).args(arguments), PATIENCE)
}

/// Writes `bytes` to the start of the decrypted disk, with the library for Rust.
fn fill(image: &Path, bytes: &[u8]) {
    let volume = cryptline::Open::new(image).passphrase(PHRASE).open().unwrap();
    let mut disk = volume.blocking().unwrap();
    disk.write_at(0, bytes, true).unwrap();
}

#[test]
fn example_reads_what_is_in_an_image_of_cryptsetups() {
    let installed = Installed::new();
    for version in ["luks1", "luks2"] {
        let (Some(program), Some(image)) =
            (installed.compile("examples/open_and_read.c", "open_and_read"), installed.image(version, PHRASE))
        else {
            return;
        };
        let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
        fill(&image, &bytes);
        let read = |phrase: &str| run_program(&program, &[&image, phrase.as_ref(), "8192".as_ref()]);
        assert!(read(PHRASE).success().stdout == bytes);
        let refused = read("wrong").exited_with(1);
        let said = "No key available with this passphrase. Try another passphrase, or name a key slot.";
        assert!(refused.stderr_text().contains(said), "{refused}");
    }
}

#[test]
fn example_of_the_page_runs_as_it_is_written() {
    let page = std::fs::read_to_string(crate_path("../../docs/c.md")).unwrap();
    let (_, example) = page.split_once("```c\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let installed = Installed::new();
    let source = installed.path("page.c");
    std::fs::write(&source, example).unwrap();
    let (Some(program), Some(image)) =
        (installed.compile(source.to_str().unwrap(), "page"), installed.image("luks2", "secret"))
    else {
        return;
    };
    let mut command = Command::new(program);
    command.current_dir(image.parent().unwrap());
    let read = run(&mut command, PATIENCE).success();
    assert_eq!(read.stdout.len(), 4096);
}

#[test]
fn example_keeps_many_requests_in_flight() {
    let installed = Installed::new();
    let (Some(program), Some(image)) =
        (installed.compile("examples/async.c", "async"), installed.image("luks2", PHRASE))
    else {
        return;
    };
    let done = run_program(&program, &[&image, PHRASE.as_ref()]).success();
    assert_eq!(done.stdout_text(), "256 blocks written, flushed and read\n");
    // Also where a request has ended before it could be waited for.
    let memory = run_program(&program, &["ram:8M".as_ref()]);
    memory.success();
}

#[test]
fn every_call_does_what_the_header_says() {
    let installed = Installed::new();
    let (Some(program), Some(_)) =
        (installed.compile("tests/c/calls.c", "calls"), peer::require_all(["nbdinfo", "nbdcopy"]))
    else {
        return;
    };
    run(&mut every_call(&installed, &program), PATIENCE).success();
}

/// The program that makes every call, in a folder of its own.
fn every_call(installed: &Installed, program: &Path) -> Command {
    let noise: Vec<u8> = (0..4_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let folder = installed.path("calls-in");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("clear"), noise).unwrap();
    // What it runs while it serves its disk of 4 MiB.
    let clients = r#"set -e
        test "$(nbdinfo --size "$uri")" = 4194304
        nbdcopy --flush clear "$uri"
        nbdcopy "$uri" copy
        cmp clear copy"#;
    let mut command = Command::new(program);
    command.arg(&folder).env("CLIENTS", clients).current_dir(&folder);
    command
}

/// A socket with a timeout says that it was interrupted then, though there is no handler (signal(7)).
#[test]
fn programs_do_what_they_do_though_they_are_stopped_and_go_on() {
    let installed = Installed::new();
    let peers = peer::require_all(["nbdinfo", "nbdcopy", "nbdkit"]);
    let programs = [("tests/c/calls.c", "calls"), ("examples/async.c", "async"), ("examples/open_and_read.c", "read")];
    let programs = programs.map(|(source, name)| installed.compile(source, name));
    let ([Some(calls), Some(asynchronous), Some(read)], Some([_, _, nbdkit]), Some(image)) =
        (programs, peers, installed.image("luks2", PHRASE))
    else {
        return;
    };
    nudge(every_call(&installed, &calls));

    // The same disk in a file, and behind a server that takes its time.
    let socket = installed.path("nbdkit");
    let mut serve = nbdkit.command();
    serve.args(["--foreground", "--exit-with-parent", "--filter=delay", "--unix"]).arg(&socket);
    serve.arg("file").arg(&image).args(["delay-open=100ms", "delay-read=1ms", "delay-write=1ms"]);
    let server = BackgroundProgram::spawn(&mut serve).wait_for_socket(&socket, PATIENCE);
    let uri = PathBuf::from(format!("nbd+unix:///?socket={}", socket.display()));
    for target in [&image, &uri] {
        let run = |program: &Path, more: &[&str]| {
            let mut command = Command::new(program);
            command.arg(target).arg(PHRASE).args(more);
            nudge(command)
        };
        assert_eq!(run(&asynchronous, &[]).stdout_text(), "256 blocks written, flushed and read\n");
        let found = run(&read, &["1048576"]).stdout;
        assert!(found == run_program(&read, &[&image, PHRASE.as_ref(), "1048576".as_ref()]).success().stdout);
    }
    server.stop();
}

/// Runs a program to its end, stopped again and again.
#[track_caller]
fn nudge(mut command: Command) -> Run {
    let mut process = BackgroundProgram::spawn(&mut command);
    let nudged = Nudged::new(&process);
    let status = process.wait(PATIENCE);
    let stops = nudged.stops();
    drop(nudged);
    let run = process.collect();
    assert!(status.is_some_and(|status| status.success()), "{command:?}:\n{run}");
    assert!(stops > 0, "it was never stopped");
    run
}

#[test]
fn valgrind_finds_nothing_in_a_program_that_makes_every_call() {
    let installed = Installed::new();
    let (Some(program), Some(valgrind)) = (installed.compile("tests/c/calls.c", "calls"), peer::require("valgrind"))
    else {
        return;
    };
    let mut command = valgrind.command();
    command
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .arg(format!("--suppressions={}", crate_path("tests/c/valgrind.supp").display()))
        .args(["--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"])
        .arg(program)
        .arg(installed.folder.path());
    run(&mut command, PATIENCE).success();
}

#[test]
fn program_with_the_library_in_it_needs_no_other() {
    let installed = Installed::new();
    let (Some([cc, pkg_config]), Some(image)) =
        (peer::require_all(["cc", "pkg-config"]), installed.image("luks2", PHRASE))
    else {
        return;
    };
    std::fs::remove_file(installed.path("lib/libcryptline.so")).unwrap();
    let program = installed.path("static");
    let mut command = cc.command();
    command
        .arg(crate_path("examples/open_and_read.c"))
        .args(installed.flags(&pkg_config, &["--cflags", "--libs", "--static"]))
        .arg("-o")
        .arg(&program);
    run(&mut command, PATIENCE).success();
    run_program(&program, &[&image, PHRASE.as_ref()]).success();
}

#[test]
fn header_is_one_for_cplusplus_too() {
    let Some(compiler) = peer::require("c++") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.cpp");
    let text = "#include <cryptline.h>\nint main() { return cryptline_close(nullptr) == 0; }\n";
    std::fs::write(&source, text).unwrap();
    let mut command = compiler.command();
    command
        .args(["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"])
        .args([crate_path("include"), source]);
    run(&mut command, PATIENCE).success();
}

#[test]
fn shared_library_offers_its_calls_and_nothing_else() {
    let installed = Installed::new();
    let Some(nm) = peer::require("nm") else {
        return;
    };
    let listed =
        nm.run(["--dynamic".as_ref(), "--defined-only".as_ref(), installed.path("lib/libcryptline.so").as_os_str()]);
    let listed = listed.success().stdout_text();
    let header = std::fs::read_to_string(crate_path("include/cryptline.h")).unwrap();
    let names = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    let mut count = 0;
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
        count += 1;
    }
    let calls = header.lines().filter(|line| {
        let starts = ["int cryptline_", "const char *cryptline_"];
        starts.iter().any(|start| line.starts_with(start))
    });
    assert_eq!(count, calls.count());
}
