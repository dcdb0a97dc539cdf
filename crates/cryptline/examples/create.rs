//! Makes a LUKS2 volume of 64 MiB and writes to it: `create FILE PASSPHRASE`.

use cryptline::{Create, Open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let (file, phrase) = words.next().zip(words.next()).ok_or("FILE PASSPHRASE")?;
    let made = Create::new(&file).size(64 << 20).passphrase(&phrase).create()?;
    println!("{file}: {} bytes of decrypted disk", made.data_size);
    let volume = Open::new(&file).passphrase(&phrase).open()?;
    let mut disk = volume.blocking()?;
    disk.write_at(0, &[0x5a; 4096], false)?;
    disk.flush()?;
    Ok(())
}
