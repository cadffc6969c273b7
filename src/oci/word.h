#ifndef AGX_OCI_WORD_H
#define AGX_OCI_WORD_H
/*
 * Which strings may become arguments of a container engine. Each stands in one slot after a fixed option or `--`, so
 * these rules only keep out what an engine would itself take apart: a leading '-' (an option), blanks and control bytes.
 */
#include "base/view.h"

/* An image, a platform, a network, an amount: not empty, no leading '-', no blank, no control byte. */
bool agx_oci_word(agx_view text);
/* The source of a bind mount: absolute, no control byte, and neither ',' nor '"', which end a field of --mount. */
bool agx_oci_source(agx_view text);
/* A container's name or id, a sandbox's id: letters, digits, '_', '.' and '-' inside, at most 128. */
bool agx_oci_name(agx_view text);
/* An environment variable's name: printable ASCII without blanks and '=', no leading '-' or '#'. */
bool agx_oci_variable(agx_view text);

#endif
