#ifndef AGX_BUNDLE_SBOM_H
#define AGX_BUNDLE_SBOM_H
/*
 * What is in a bundle, for tools that look for known faults: /nix/runtime/sbom.cdx.json, CycloneDX 1.5. Python distributions
 * and npm packages with their package URLs, the interpreter, every library and program of the closure by its hash, paths of the Nix store. It
 * names no time and no machine, so equal trees have equal ones.
 */
#include "bundle/npm.h"
#include "bundle/stage.h"

/* `python`: the interpreter's version. */
int agx_sbom_write(const agx_stage *s, const char *name, const char *tag, const char *python, const agx_npm_list *npm,
                   agx_why *why);

#endif
