/* Opens a volume and writes its decrypted first bytes to standard output: open_and_read TARGET PASSPHRASE [BYTES] */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cryptline.h>

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: open_and_read TARGET PASSPHRASE [BYTES]\n");
        return 2;
    }
    size_t len = argc > 3 ? strtoul(argv[3], NULL, 10) : 512;

    struct cryptline_open_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = CRYPTLINE_READ_ONLY;
    options.passphrase.data = argv[2];
    options.passphrase.len = strlen(argv[2]);

    int status = 1;
    char *bytes = malloc(len);
    cryptline_volume *volume = NULL;
    if (bytes == NULL)
        return 1;
    if (cryptline_open(&volume, argv[1], &options) < 0)
        fprintf(stderr, "%s\n", cryptline_last_error());
    else if (cryptline_read(volume, bytes, len, 0) < 0)
        fprintf(stderr, "%s: %s\n", argv[1], cryptline_last_error());
    else
        status = fwrite(bytes, 1, len, stdout) == len ? 0 : 1;
    if (volume != NULL)
        cryptline_close(volume);
    free(bytes);
    return status;
}
