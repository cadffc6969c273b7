#ifndef AGX_OCI_LABELS_H
#define AGX_OCI_LABELS_H
/*
 * The labels of every container that is one of our sandboxes. By them `agentix ps`, `agentix rm` and `agentix prune` find
 * sandboxes, whoever started them and with whichever engine; a container without the first one is never touched.
 *
 *   agentix.sandbox   the sandbox's id, which is also the container's name: agentix-<8 hex>
 *   agentix.lease     seconds that its server lives without an authenticated connection, as in AGENTIX_LEASE: "900.000";
 *                     "0" if it has no lease
 *   agentix.host      who started it: <boot id>:<pid>:<start time>, from /proc/sys/kernel/random/boot_id, and the pid and
 *                     field 22 of /proc/<pid>/stat. That host is alive if the boot id is this machine's and a process
 *                     with that pid and start time is there. Pids are those of the host's own pid namespace: who does
 *                     not see the process may still be wrong about its death, so remove by it only what has exited, or
 *                     what a person asked for.
 */
#define AGX_OCI_LABEL_SANDBOX "agentix.sandbox"
#define AGX_OCI_LABEL_LEASE "agentix.lease"
#define AGX_OCI_LABEL_HOST "agentix.host"

#endif
