//! Assembles Linux's AES-XTS out of Debian's `linux-source` package, where that is installed.
//!
//! ```text
//!   /usr/src/linux-source-*.tar.xz, or LINUX_SOURCE=FILE ──► aes-xts-avx-x86_64.S ──► cfg(linux_xts)
//! ```
//!
//! Nothing of it is kept here. Without the package the benchmark has one peer less.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = "arch/x86/crypto/aes-xts-avx-x86_64.S";
/// Contents of its includes, as far as it needs them.
const LINKAGE: &str = "\
#define SYM_TYPED_FUNC_START(name) .globl name; .type name, @function; .p2align 4; name:
#define SYM_FUNC_END(name) .size name, . - name
#define RET ret
.section .note.GNU-stack, \"\", @progbits
.text
";
/// Entry points that `linux.rs` calls.
const FUNCTIONS: [&str; 3] = ["aes_xts_encrypt_iv", "aes_xts_encrypt_vaes_avx2", "aes_xts_encrypt_vaes_avx10_512"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(linux_xts)");
    println!("cargo::rerun-if-env-changed=LINUX_SOURCE");
    println!("cargo::rerun-if-changed=/usr/src");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    match package()
        .ok_or("there is no linux-source package: apt-get install linux-source-6.12".into())
        .and_then(|package| assemble(&package, &out))
    {
        Ok(()) => println!("cargo::rustc-cfg=linux_xts"),
        Err(why) => println!("cargo::warning=without Linux's AES-XTS: {why}"),
    }
}

/// The one asked for, or the last by name.
fn package() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("LINUX_SOURCE") {
        return Some(file.into());
    }
    let files = std::fs::read_dir("/usr/src").ok()?;
    let files = files.filter_map(|file| Some(file.ok()?.path()));
    let is_source = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("linux-source-") && name.ends_with(".tar.xz")
    };
    files.filter(is_source).max()
}

fn assemble(package: &Path, out: &Path) -> Result<(), String> {
    let include = out.join("include/linux");
    let write =
        |path: &Path, text: &str| std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()));
    std::fs::create_dir_all(&include).map_err(|error| error.to_string())?;
    write(&include.join("linkage.h"), LINKAGE)?;
    write(&include.join("cfi_types.h"), "")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout", "--wildcards", "--file"]);
    let source = run(tar.arg(package).arg(format!("*/{SOURCE}")))?;
    for function in FUNCTIONS {
        if !source.contains(&format!("SYM_TYPED_FUNC_START({function})")) {
            return Err(format!("{} has no {function}: set LINUX_SOURCE to one of Linux 6.12", package.display()));
        }
    }
    let (text, object) = (out.join("linux_xts.S"), out.join("linux_xts.o"));
    write(&text, &source)?;
    let mut cc = Command::new("cc");
    cc.args(["-c", "-D__ASSEMBLY__", "-DCONFIG_AS_VAES", "-DCONFIG_AS_VPCLMULQDQ", "-I"]);
    run(cc.arg(out.join("include")).arg(&text).arg("-o").arg(&object))?;
    run(Command::new("ar").arg("crs").arg(out.join("liblinux_xts.a")).arg(&object))?;
    println!("cargo::rustc-link-search=native={}", out.display());
    println!("cargo::rustc-link-lib=static=linux_xts");
    Ok(())
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
