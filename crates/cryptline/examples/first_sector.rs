//! The example of docs/rust.md: reads the first 4 KiB of `disk.img`, whose passphrase is `secret`.

use cryptline::Open;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let volume = Open::new("disk.img").passphrase("secret").open()?;
    let mut sector = [0; 4096];
    volume.blocking()?.read_at(0, &mut sector)?;
    Ok(())
}
