_cryptline() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="cryptline"
                ;;
            cryptline,attach)
                cmd="cryptline__subcmd__attach"
                ;;
            cryptline,bench)
                cmd="cryptline__subcmd__bench"
                ;;
            cryptline,benchmark)
                cmd="cryptline__subcmd__benchmark"
                ;;
            cryptline,btt)
                cmd="cryptline__subcmd__btt"
                ;;
            cryptline,certs)
                cmd="cryptline__subcmd__certs"
                ;;
            cryptline,completions)
                cmd="cryptline__subcmd__completions"
                ;;
            cryptline,config)
                cmd="cryptline__subcmd__config"
                ;;
            cryptline,convert)
                cmd="cryptline__subcmd__convert"
                ;;
            cryptline,copy)
                cmd="cryptline__subcmd__copy"
                ;;
            cryptline,create)
                cmd="cryptline__subcmd__create"
                ;;
            cryptline,ctl)
                cmd="cryptline__subcmd__ctl"
                ;;
            cryptline,detach)
                cmd="cryptline__subcmd__detach"
                ;;
            cryptline,devices)
                cmd="cryptline__subcmd__devices"
                ;;
            cryptline,encrypt)
                cmd="cryptline__subcmd__encrypt"
                ;;
            cryptline,erase)
                cmd="cryptline__subcmd__erase"
                ;;
            cryptline,header)
                cmd="cryptline__subcmd__header"
                ;;
            cryptline,info)
                cmd="cryptline__subcmd__info"
                ;;
            cryptline,isLuks)
                cmd="cryptline__subcmd__isLuks"
                ;;
            cryptline,key)
                cmd="cryptline__subcmd__key"
                ;;
            cryptline,luksAddKey)
                cmd="cryptline__subcmd__luksAddKey"
                ;;
            cryptline,luksChangeKey)
                cmd="cryptline__subcmd__luksChangeKey"
                ;;
            cryptline,luksConvertKey)
                cmd="cryptline__subcmd__luksConvertKey"
                ;;
            cryptline,luksDump)
                cmd="cryptline__subcmd__luksDump"
                ;;
            cryptline,luksErase)
                cmd="cryptline__subcmd__luksErase"
                ;;
            cryptline,luksFormat)
                cmd="cryptline__subcmd__luksFormat"
                ;;
            cryptline,luksHeaderBackup)
                cmd="cryptline__subcmd__luksHeaderBackup"
                ;;
            cryptline,luksHeaderRestore)
                cmd="cryptline__subcmd__luksHeaderRestore"
                ;;
            cryptline,luksKillSlot)
                cmd="cryptline__subcmd__luksKillSlot"
                ;;
            cryptline,luksOpen)
                cmd="cryptline__subcmd__luksOpen"
                ;;
            cryptline,luksRemoveKey)
                cmd="cryptline__subcmd__luksRemoveKey"
                ;;
            cryptline,luksUUID)
                cmd="cryptline__subcmd__luksUUID"
                ;;
            cryptline,man)
                cmd="cryptline__subcmd__man"
                ;;
            cryptline,mount)
                cmd="cryptline__subcmd__mount"
                ;;
            cryptline,open)
                cmd="cryptline__subcmd__open"
                ;;
            cryptline,recover)
                cmd="cryptline__subcmd__recover"
                ;;
            cryptline,repair)
                cmd="cryptline__subcmd__repair"
                ;;
            cryptline,resize)
                cmd="cryptline__subcmd__resize"
                ;;
            cryptline,serve)
                cmd="cryptline__subcmd__serve"
                ;;
            cryptline,table)
                cmd="cryptline__subcmd__table"
                ;;
            cryptline,testing)
                cmd="cryptline__subcmd__testing"
                ;;
            cryptline,token)
                cmd="cryptline__subcmd__token"
                ;;
            cryptline,top)
                cmd="cryptline__subcmd__top"
                ;;
            cryptline,umount)
                cmd="cryptline__subcmd__umount"
                ;;
            cryptline,vhost-user)
                cmd="cryptline__subcmd__vhost__subcmd__user"
                ;;
            cryptline,zones)
                cmd="cryptline__subcmd__zones"
                ;;
            cryptline__subcmd__bench,doors)
                cmd="cryptline__subcmd__bench__subcmd__doors"
                ;;
            cryptline__subcmd__bench,images)
                cmd="cryptline__subcmd__bench__subcmd__images"
                ;;
            cryptline__subcmd__bench,inline)
                cmd="cryptline__subcmd__bench__subcmd__inline"
                ;;
            cryptline__subcmd__bench,media)
                cmd="cryptline__subcmd__bench__subcmd__media"
                ;;
            cryptline__subcmd__bench,peers)
                cmd="cryptline__subcmd__bench__subcmd__peers"
                ;;
            cryptline__subcmd__bench,rbd)
                cmd="cryptline__subcmd__bench__subcmd__rbd"
                ;;
            cryptline__subcmd__bench,subblock)
                cmd="cryptline__subcmd__bench__subcmd__subblock"
                ;;
            cryptline__subcmd__bench,sweep)
                cmd="cryptline__subcmd__bench__subcmd__sweep"
                ;;
            cryptline__subcmd__bench,zoned)
                cmd="cryptline__subcmd__bench__subcmd__zoned"
                ;;
            cryptline__subcmd__btt,check)
                cmd="cryptline__subcmd__btt__subcmd__check"
                ;;
            cryptline__subcmd__btt,create)
                cmd="cryptline__subcmd__btt__subcmd__create"
                ;;
            cryptline__subcmd__btt,info)
                cmd="cryptline__subcmd__btt__subcmd__info"
                ;;
            cryptline__subcmd__ctl,add)
                cmd="cryptline__subcmd__ctl__subcmd__add"
                ;;
            cryptline__subcmd__ctl,flush)
                cmd="cryptline__subcmd__ctl__subcmd__flush"
                ;;
            cryptline__subcmd__ctl,list)
                cmd="cryptline__subcmd__ctl__subcmd__list"
                ;;
            cryptline__subcmd__ctl,reload)
                cmd="cryptline__subcmd__ctl__subcmd__reload"
                ;;
            cryptline__subcmd__ctl,remove)
                cmd="cryptline__subcmd__ctl__subcmd__remove"
                ;;
            cryptline__subcmd__ctl,resize)
                cmd="cryptline__subcmd__ctl__subcmd__resize"
                ;;
            cryptline__subcmd__ctl,stats)
                cmd="cryptline__subcmd__ctl__subcmd__stats"
                ;;
            cryptline__subcmd__header,backup)
                cmd="cryptline__subcmd__header__subcmd__backup"
                ;;
            cryptline__subcmd__header,convert)
                cmd="cryptline__subcmd__header__subcmd__convert"
                ;;
            cryptline__subcmd__header,label)
                cmd="cryptline__subcmd__header__subcmd__label"
                ;;
            cryptline__subcmd__header,repair)
                cmd="cryptline__subcmd__header__subcmd__repair"
                ;;
            cryptline__subcmd__header,restore)
                cmd="cryptline__subcmd__header__subcmd__restore"
                ;;
            cryptline__subcmd__header,uuid)
                cmd="cryptline__subcmd__header__subcmd__uuid"
                ;;
            cryptline__subcmd__key,add)
                cmd="cryptline__subcmd__key__subcmd__add"
                ;;
            cryptline__subcmd__key,change)
                cmd="cryptline__subcmd__key__subcmd__change"
                ;;
            cryptline__subcmd__key,convert)
                cmd="cryptline__subcmd__key__subcmd__convert"
                ;;
            cryptline__subcmd__key,kill)
                cmd="cryptline__subcmd__key__subcmd__kill"
                ;;
            cryptline__subcmd__key,list)
                cmd="cryptline__subcmd__key__subcmd__list"
                ;;
            cryptline__subcmd__key,priority)
                cmd="cryptline__subcmd__key__subcmd__priority"
                ;;
            cryptline__subcmd__key,remove)
                cmd="cryptline__subcmd__key__subcmd__remove"
                ;;
            cryptline__subcmd__token,add)
                cmd="cryptline__subcmd__token__subcmd__add"
                ;;
            cryptline__subcmd__token,bind)
                cmd="cryptline__subcmd__token__subcmd__bind"
                ;;
            cryptline__subcmd__token,export)
                cmd="cryptline__subcmd__token__subcmd__export"
                ;;
            cryptline__subcmd__token,import)
                cmd="cryptline__subcmd__token__subcmd__import"
                ;;
            cryptline__subcmd__token,list)
                cmd="cryptline__subcmd__token__subcmd__list"
                ;;
            cryptline__subcmd__token,remove)
                cmd="cryptline__subcmd__token__subcmd__remove"
                ;;
            cryptline__subcmd__token,unassign)
                cmd="cryptline__subcmd__token__subcmd__unassign"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        cryptline)
            opts="-h -V --help --version serve vhost-user mount umount attach detach devices recover info open create copy encrypt resize key token header erase table btt zones top ctl bench benchmark testing certs completions man luksAddKey luksChangeKey luksRemoveKey luksKillSlot luksConvertKey luksDump luksFormat luksOpen isLuks luksUUID luksHeaderBackup luksHeaderRestore luksErase repair convert config"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__attach)
            opts="-f -r -h --driver --queues --timeout --io --stats --stats-interval --metrics --foreground --log --log-level --detached-child --recover-device --table --header --read-only --direct --allow-discards --reconnect --allow-null-cipher --type --partition --token-id --token-type --token-only --pin-file --tpm-device --cipher --key-size --hash --offset --skip --size --sector-size --iv-large-sectors --force --logical-block --subblock --zeroes --shared --dispatch --read-dispatch --write-dispatch --helpers --perf-no_read_workqueue --perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --perf-high_priority --fault --delay --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --driver)
                    COMPREPLY=($(compgen -W "auto ublk nbd" -- "${cur}"))
                    return 0
                    ;;
                --queues)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io)
                    COMPREPLY=($(compgen -W "auto io_uring preadv" -- "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug" -- "${cur}"))
                    return 0
                    ;;
                --recover-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --direct)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --reconnect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2 plain" -- "${cur}"))
                    return 0
                    ;;
                --partition)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logical-block)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subblock)
                    COMPREPLY=($(compgen -W "shared exclusive" -- "${cur}"))
                    return 0
                    ;;
                --zeroes)
                    COMPREPLY=($(compgen -W "decrypt detect" -- "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --read-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --write-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fault)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench)
            opts="-h --help inline sweep subblock peers doors media zoned images rbd"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__doors)
            opts="-h --size --dir --rounds --seconds --fronts --no-pin --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rounds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fronts)
                    COMPREPLY=($(compgen -W "vhost-user nbd fuse fuse-uring" -- "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__images)
            opts="-h --size --dir --rounds --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rounds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__inline)
            opts="-h --size --cipher --helpers --front --runs --seconds --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --front)
                    COMPREPLY=($(compgen -W "in-process nbd" -- "${cur}"))
                    return 0
                    ;;
                --runs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__media)
            opts="-h --size --on --runs --warm --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --on)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --runs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__peers)
            opts="-h --size --dir --keep --rounds --seconds --jobs --servers --generators --connections --dispatch --no-pin --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rounds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -W "4k-randread-qd32 4k-randwrite-qd32 1m-read-qd4 1m-write-qd4 4k-randread-qd1 128k-randread-qd16" -- "${cur}"))
                    return 0
                    ;;
                --servers)
                    COMPREPLY=($(compgen -W "cryptline cryptline-asleep cryptline-plain qemu-nbd qemu-nbd-plain qsd qsd-plain nbdkit nbdkit-plain cryptline-over-nbd nbdkit-over-nbd null nbdkit-null" -- "${cur}"))
                    return 0
                    ;;
                --generators)
                    COMPREPLY=($(compgen -W "fio lean lean-many" -- "${cur}"))
                    return 0
                    ;;
                --connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__rbd)
            opts="-h --size --conf --pool --rounds --seconds --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --conf)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pool)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rounds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__subblock)
            opts="-h --size --write --block --jobs --depth --runs --seconds --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --write)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --block)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --jobs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --depth)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --runs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__sweep)
            opts="-h --block-sizes --depths --directions --streams --dispatch --cipher --pattern --medium --size --helpers --hog --rounds --seconds --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --block-sizes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --depths)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --directions)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --streams)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pattern)
                    COMPREPLY=($(compgen -W "sequential random" -- "${cur}"))
                    return 0
                    ;;
                --medium)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hog)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --rounds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__bench__subcmd__zoned)
            opts="-h --zone-size --slow --cipher --pool --helpers --runs --seconds --json --html --goals --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --zone-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --slow)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pool)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --runs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --html)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__benchmark)
            opts="-h --cipher --key-size --kdf --no-cipher --no-kdf --seconds --iter-time --pbkdf-memory --pbkdf-parallel --compare-cryptsetup --goals --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seconds)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__btt)
            opts="-h --help create check info"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__btt__subcmd__check)
            opts="-h --repair --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__btt__subcmd__create)
            opts="-h --size --sector-size --uuid --force --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__btt__subcmd__info)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__certs)
            opts="-h --host --client --days --to-server --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --host)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --client)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --days)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__completions)
            opts="-h --help bash elvish fish powershell zsh"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__config)
            opts="-h --header --priority --key-slot --label --subsystem --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --priority)
                    COMPREPLY=($(compgen -W "prefer normal ignore" -- "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subsystem)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__convert)
            opts="-q -h --header --to --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to)
                    COMPREPLY=($(compgen -W "luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__copy)
            opts="-h --force --from-raw --verify --zeroes --json --resume --header --encrypt --holes --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --to-key-file --to-passphrase-fd --to-volume-key-file --to-key-slot --to-token-id --to-token-type --to-token-only --to-pin-file --to-tpm-device --to-header --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --zeroes)
                    COMPREPLY=($(compgen -W "detect decrypt" -- "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --holes)
                    COMPREPLY=($(compgen -W "encrypt keep" -- "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to-header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__create)
            opts="-h --size --force --from --from-raw --verify --zeroes --json --resume --holes --from-key-file --from-passphrase-fd --from-volume-key-file --from-key-slot --from-token-id --from-token-type --from-token-only --from-pin-file --from-tpm-device --from-header --preallocate --type --luks1 --cipher --key-size --hash --sector-size --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --integrity --label --uuid --seed-file --header --volume-key-file --key-slot --subsystem --luks2-metadata-size --luks2-keyslots-size --keyslot-cipher --keyslot-key-size --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --zeroes)
                    COMPREPLY=($(compgen -W "detect decrypt" -- "${cur}"))
                    return 0
                    ;;
                --holes)
                    COMPREPLY=($(compgen -W "encrypt keep" -- "${cur}"))
                    return 0
                    ;;
                --from-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --from-header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --integrity)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subsystem)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --luks2-metadata-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --luks2-keyslots-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl)
            opts="-h --json --help list stats flush resize reload remove add"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__add)
            opts="-n -r -h --export-name --name --description --read-only --allow-discards --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --export-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -n)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__flush)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__list)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__reload)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__remove)
            opts="-h --force --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__resize)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__ctl__subcmd__stats)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__detach)
            opts="-h --force --after-server --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --after-server)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__devices)
            opts="-h --json --owner-of --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --owner-of)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__encrypt)
            opts="-h --force --from-raw --verify --zeroes --json --holes --preallocate --resume --type --luks1 --cipher --key-size --hash --sector-size --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --integrity --label --uuid --seed-file --header --volume-key-file --key-slot --subsystem --luks2-metadata-size --luks2-keyslots-size --keyslot-cipher --keyslot-key-size --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --zeroes)
                    COMPREPLY=($(compgen -W "detect decrypt" -- "${cur}"))
                    return 0
                    ;;
                --holes)
                    COMPREPLY=($(compgen -W "encrypt keep" -- "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --integrity)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subsystem)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --luks2-metadata-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --luks2-keyslots-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__erase)
            opts="-q -h --header --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header)
            opts="-h --help backup restore uuid label convert repair"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header__subcmd__backup)
            opts="-h --header --file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header__subcmd__convert)
            opts="-q -h --header --to --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --to)
                    COMPREPLY=($(compgen -W "luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header__subcmd__label)
            opts="-h --header --label --subsystem --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subsystem)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header__subcmd__repair)
            opts="-q -h --header --wipe-unused --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header__subcmd__restore)
            opts="-q -h --header --file --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__header__subcmd__uuid)
            opts="-q -h --header --uuid --random --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__info)
            opts="-h --json --header --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__isLuks)
            opts="-h --header --type --disable-locks --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key)
            opts="-h --help add change remove kill list priority convert"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__add)
            opts="-q -h --header --new-key-slot --recovery --unbound --key-size --batch-mode --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --new-key-file --new-keyfile-offset --new-keyfile-size --new-passphrase-fd --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --hash --keyslot-cipher --keyslot-key-size --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__change)
            opts="-q -h --batch-mode --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --new-key-file --new-keyfile-offset --new-keyfile-size --new-passphrase-fd --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --hash --keyslot-cipher --keyslot-key-size --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__convert)
            opts="-q -h --batch-mode --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --hash --keyslot-cipher --keyslot-key-size --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__kill)
            opts="-q -h --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__list)
            opts="-h --header --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__priority)
            opts="-h --header --help prefer normal ignore"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__key__subcmd__remove)
            opts="-q -h --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksAddKey)
            opts="-q -h --header --new-key-slot --recovery --unbound --key-size --batch-mode --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --new-key-file --new-keyfile-offset --new-keyfile-size --new-passphrase-fd --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --hash --keyslot-cipher --keyslot-key-size --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksChangeKey)
            opts="-q -h --batch-mode --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --new-key-file --new-keyfile-offset --new-keyfile-size --new-passphrase-fd --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --hash --keyslot-cipher --keyslot-key-size --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksConvertKey)
            opts="-q -h --batch-mode --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --hash --keyslot-cipher --keyslot-key-size --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksDump)
            opts="-q -h --header --json --dump-json-metadata --dump-volume-key --unbound --batch-mode --volume-key-file --key-slot --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksErase)
            opts="-q -h --header --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksFormat)
            opts="-q -h --batch-mode --offset --align-payload --use-random --use-urandom --type --luks1 --cipher --key-size --hash --sector-size --pbkdf --iter-time --pbkdf-force-iterations --pbkdf-memory --pbkdf-parallel --integrity --label --uuid --seed-file --header --volume-key-file --key-slot --subsystem --luks2-metadata-size --luks2-keyslots-size --keyslot-cipher --keyslot-key-size --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --align-payload)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf)
                    COMPREPLY=($(compgen -W "pbkdf2 argon2i argon2id" -- "${cur}"))
                    return 0
                    ;;
                --iter-time)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-force-iterations)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-memory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pbkdf-parallel)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --integrity)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --label)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --seed-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subsystem)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --luks2-metadata-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --luks2-keyslots-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyslot-key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksHeaderBackup)
            opts="-h --header --file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksHeaderRestore)
            opts="-q -h --header --file --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksKillSlot)
            opts="-q -h --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksOpen)
            opts="-q -h --check --header --type --allow-null-cipher --unbound --key-size --tries --batch-mode --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksRemoveKey)
            opts="-q -h --header --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__luksUUID)
            opts="-q -h --header --uuid --random --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --uuid)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__man)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__mount)
            opts="-f -P -v -u -g -r -h --foreground --allow-other --name --cache --lanes --fuse-uring --ready-fd --socket-mode --pid-file --pidfile --exit-with-parent --io --poll-us --stats --stats-interval --metrics --verbose --log --log-level --sandbox --user --group --sandbox-probe --table --header --read-only --direct --allow-discards --reconnect --allow-null-cipher --type --partition --token-id --token-type --token-only --pin-file --tpm-device --cipher --key-size --hash --offset --skip --size --sector-size --iv-large-sectors --force --logical-block --subblock --zeroes --shared --dispatch --read-dispatch --write-dispatch --helpers --perf-no_read_workqueue --perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --perf-high_priority --fault --delay --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --lanes)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ready-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket-mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pidfile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pid-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -P)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io)
                    COMPREPLY=($(compgen -W "auto io_uring preadv" -- "${cur}"))
                    return 0
                    ;;
                --poll-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug" -- "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -g)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --direct)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --reconnect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2 plain" -- "${cur}"))
                    return 0
                    ;;
                --partition)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logical-block)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subblock)
                    COMPREPLY=($(compgen -W "shared exclusive" -- "${cur}"))
                    return 0
                    ;;
                --zeroes)
                    COMPREPLY=($(compgen -W "decrypt detect" -- "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --read-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --write-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fault)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__open)
            opts="-q -h --check --header --type --allow-null-cipher --unbound --key-size --tries --batch-mode --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2" -- "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tries)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__recover)
            opts="-h --replace --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__repair)
            opts="-q -h --header --wipe-unused --batch-mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__resize)
            opts="-h --header --shrink --force --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__serve)
            opts="-U -p -b -i -e -f -P -v -u -g -r -h --unix --port --bind --ip-addr --export-name --description --control --run --max-connections --foreground --tls --tls-certificates --tls-verify-peer --tls-authz --socket-mode --pid-file --pidfile --exit-with-parent --io --poll-us --stats --stats-interval --metrics --verbose --log --log-level --sandbox --user --group --sandbox-probe --table --header --read-only --direct --allow-discards --reconnect --allow-null-cipher --type --partition --token-id --token-type --token-only --pin-file --tpm-device --cipher --key-size --hash --offset --skip --size --sector-size --iv-large-sectors --force --logical-block --subblock --zeroes --shared --dispatch --read-dispatch --write-dispatch --helpers --perf-no_read_workqueue --perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --perf-high_priority --fault --delay --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --unix)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -U)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --port)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -p)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --ip-addr)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --bind)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -i)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -b)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --export-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -e)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --control)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --run)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tls)
                    COMPREPLY=($(compgen -W "off on require" -- "${cur}"))
                    return 0
                    ;;
                --tls-certificates)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tls-authz)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket-mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pidfile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pid-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -P)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io)
                    COMPREPLY=($(compgen -W "auto io_uring preadv" -- "${cur}"))
                    return 0
                    ;;
                --poll-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug" -- "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -g)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --direct)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --reconnect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2 plain" -- "${cur}"))
                    return 0
                    ;;
                --partition)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logical-block)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subblock)
                    COMPREPLY=($(compgen -W "shared exclusive" -- "${cur}"))
                    return 0
                    ;;
                --zeroes)
                    COMPREPLY=($(compgen -W "decrypt detect" -- "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --read-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --write-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fault)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__table)
            opts="-r -h --show-keys --table --header --read-only --direct --allow-discards --reconnect --allow-null-cipher --type --partition --token-id --token-type --token-only --pin-file --tpm-device --cipher --key-size --hash --offset --skip --size --sector-size --iv-large-sectors --force --logical-block --subblock --zeroes --shared --dispatch --read-dispatch --write-dispatch --helpers --perf-no_read_workqueue --perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --perf-high_priority --fault --delay --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --direct)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --reconnect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2 plain" -- "${cur}"))
                    return 0
                    ;;
                --partition)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logical-block)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subblock)
                    COMPREPLY=($(compgen -W "shared exclusive" -- "${cur}"))
                    return 0
                    ;;
                --zeroes)
                    COMPREPLY=($(compgen -W "decrypt detect" -- "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --read-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --write-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fault)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__testing)
            opts="-h --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token)
            opts="-h --help list add bind import export remove unassign"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__add)
            opts="-h --header --key-description --token-id --token-replace --key-slot --unbound --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-description)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__bind)
            opts="-q -h --header --thumbprint --pcrs --with-pin --new-pin-file --new-key-slot --batch-mode --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --token-id --token-type --token-only --pin-file --tpm-device --help tang sss tpm2"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --thumbprint)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pcrs)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --new-key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__export)
            opts="-h --header --token-id --json-file --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__import)
            opts="-h --header --json-file --token-id --token-replace --key-slot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --json-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__list)
            opts="-h --header --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__remove)
            opts="-h --header --token-id --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__token__subcmd__unassign)
            opts="-h --header --token-id --key-slot --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__top)
            opts="-h --once --sort --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --sort)
                    COMPREPLY=($(compgen -W "server name iops bandwidth latency" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__umount)
            opts="-l -h --lazy --at-end-of-input --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__vhost__subcmd__user)
            opts="-P -v -u -g -r -h --socket-path --fd --print-capabilities --num-queues --queue-size --serial --blk-file --socket-mode --pid-file --pidfile --exit-with-parent --io --poll-us --stats --stats-interval --metrics --verbose --log --log-level --sandbox --user --group --sandbox-probe --table --header --read-only --direct --allow-discards --reconnect --allow-null-cipher --type --partition --token-id --token-type --token-only --pin-file --tpm-device --cipher --key-size --hash --offset --skip --size --sector-size --iv-large-sectors --force --logical-block --subblock --zeroes --shared --dispatch --read-dispatch --write-dispatch --helpers --perf-no_read_workqueue --perf-no_write_workqueue --perf-same_cpu_crypt --perf-submit_from_crypt_cpus --perf-high_priority --fault --delay --key-file --keyfile-offset --keyfile-size --key-file-newline --passphrase-fd --volume-key-file --key-slot --kdf-time-limit --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --socket-path)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --num-queues)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --queue-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --serial)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --blk-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --socket-mode)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pidfile)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pid-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -P)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --io)
                    COMPREPLY=($(compgen -W "auto io_uring preadv" -- "${cur}"))
                    return 0
                    ;;
                --poll-us)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stats-interval)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --metrics)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug" -- "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -u)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                -g)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --table)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --header)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --direct)
                    COMPREPLY=($(compgen -W "auto on off" -- "${cur}"))
                    return 0
                    ;;
                --reconnect)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --type)
                    COMPREPLY=($(compgen -W "luks luks1 luks2 plain" -- "${cur}"))
                    return 0
                    ;;
                --partition)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --token-type)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pin-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --tpm-device)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cipher)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --hash)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --skip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sector-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --logical-block)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --subblock)
                    COMPREPLY=($(compgen -W "shared exclusive" -- "${cur}"))
                    return 0
                    ;;
                --zeroes)
                    COMPREPLY=($(compgen -W "decrypt detect" -- "${cur}"))
                    return 0
                    ;;
                --dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --read-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --write-dispatch)
                    COMPREPLY=($(compgen -W "inline queue auto" -- "${cur}"))
                    return 0
                    ;;
                --helpers)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --fault)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --delay)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-offset)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --keyfile-size)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-file-newline)
                    COMPREPLY=($(compgen -W "keep strip" -- "${cur}"))
                    return 0
                    ;;
                --passphrase-fd)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --volume-key-file)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --key-slot)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kdf-time-limit)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        cryptline__subcmd__zones)
            opts="-h --json --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _cryptline -o nosort -o bashdefault -o default cryptline
else
    complete -F _cryptline -o bashdefault -o default cryptline
fi
