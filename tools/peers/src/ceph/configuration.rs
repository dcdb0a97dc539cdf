//! The file that daemons and clients read.

use std::path::Path;

use super::ClusterOptions;

/// Of a cluster in `folder`.
pub(super) fn text(folder: &Path, fsid: &str, port: u16, options: ClusterOptions) -> String {
    let root = folder.display();
    let auth = if options.needs_keys { "cephx" } else { "none" };
    let replicas = options.replicas;
    format!(
        "\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
public network = 127.0.0.0/8
ms bind msgr1 = false
auth cluster required = {auth}
auth service required = {auth}
auth client required = {auth}
keyring = {root}/keyring
run dir = {root}/run
admin socket = {root}/run/$name.$pid.asok
pid file = {root}/run/$name.pid
log file = {root}/log/$name.log
crash dir = {root}/log
mon cluster log file = {root}/log/cluster.log
osd pool default size = {replicas}
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 1
osd memory target = 939524096
[mon]
mon data = {root}/mon
paxos propose interval = 0.05
paxos min wait = 0.01
mon osd min down reporters = 1
[osd]
osd data = {root}/osd.$id
osd objectstore = memstore
memstore device bytes = 2147483648
osd op num shards = 2
osd op num threads per shard = 1
[client]
log file =\x20
"
    )
}
