//! Opens a volume and prints its first sector: `open_and_read TARGET PASSPHRASE`.

use cryptline::Open;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (target, phrase) = words.next().zip(words.next()).ok_or("TARGET PASSPHRASE")?;
    let volume = Open::new(target).passphrase(&phrase).read_only(true).open()?;
    let mut sector = [0; 512];
    volume.blocking()?.read_at(0, &mut sector)?;
    println!("{}", sector.escape_ascii());
    Ok(())
}
