//! Key files that are sockets.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::common::*;

#[test]
fn server_of_keys_is_told_the_uuid_and_opens_the_disk() {
    let folder = Folder::new();
    let (image, socket) = (folder.luks2(), folder.path("key.sock"));
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    let (image, path) = (image.display().to_string(), socket.display().to_string());
    cryptline(["header", "uuid", &image, "--uuid", uuid]).success();
    let listener = UnixListener::bind(&socket).unwrap();
    let keyed = format!("{image}?key-file={path}");
    for arguments in [&["open", "--check", &image, "--key-file", &path][..], &["open", "--check", &keyed]] {
        let address = std::thread::scope(|scope| {
            let run = scope.spawn(|| cryptline(arguments).success());
            let (mut stream, address) = listener.accept().unwrap();
            stream.write_all(PASSPHRASE.as_bytes()).unwrap();
            drop(stream);
            run.join().unwrap();
            address
        });
        assert_eq!(told(&address), uuid);
    }
    drop(listener);
    refused(cryptline(["open", "--check", &image, "--key-file", &path]), 4, "connect to the key socket");
}

/// Name behind the random part of an abstract address.
fn told(address: &SocketAddr) -> String {
    let name = String::from_utf8(address.as_abstract_name().expect("an abstract address").to_vec()).unwrap();
    name.split_once("/cryptsetup/").expect("the address of the protocol").1.to_owned()
}
