//! Gives the shared library the name that programs will look for.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcryptline.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
