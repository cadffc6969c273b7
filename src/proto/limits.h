#ifndef AGX_PROTO_LIMITS_H
#define AGX_PROTO_LIMITS_H
/*
 * Every bound of Agentix, in one table. A bound that is not here is not a promise; tools/limits.py exports the lines
 * to the docs, so each carries its unit and its reason.
 */

/* What travels. */
#define AGX_MAX_MESSAGE (256u << 20)         /* bytes of one message: HTTP body, worker frame */
#define AGX_MAX_NESTING 64                   /* depth of msgpack arrays and maps, on encode and decode alike */
#define AGX_MAX_CALL_ID 256                  /* bytes of a call id */
#define AGX_MAX_CALLABLE 4096                /* bytes of "module::qualname" */
#define AGX_MAX_SESSION 64                   /* bytes of a session name */
#define AGX_MAX_ACKS 4096                    /* ids acknowledged by one request */
#define AGX_MAX_EVENT_IDS 65536              /* ids in one `resume` or `ack` event */
#define AGX_MAX_FAULT_TYPE 256               /* bytes of error.type, cut by the sender, again by the receiver */
#define AGX_MAX_FAULT_MESSAGE (64u << 10)    /* bytes of error.message */
#define AGX_MAX_FAULT_TRACEBACK (256u << 10) /* bytes of error.traceback */

/* HTTP. */
#define AGX_HTTP_HEAD_MAX (32u << 10) /* bytes of a request line or status line and its header fields; above: 431 */
#define AGX_HTTP_HEADERS_MAX 100      /* header fields of one message; above: 431 */
#define AGX_HTTP_CHUNK_LINE_MAX (4u << 10) /* bytes of one chunk-size line with its extensions */
#define AGX_HTTP_TRAILER_MAX (8u << 10)    /* bytes of a trailer section */
#define AGX_HTTP_HEAD_MS 10000             /* from the first byte of a head to its end; above: 408 */
#define AGX_HTTP_BODY_GRACE_MS 10000       /* a body may be slow for this long, then: */
#define AGX_HTTP_BODY_RATE 1024            /* bytes per second a body must arrive at; below: 408 */
#define AGX_HTTP_IDLE_MS 75000             /* a kept-alive connection without a request */
#define AGX_HTTP_FIRST_MS 10000            /* a new connection that says nothing */
#define AGX_HTTP_LINGER_MS 2000    /* after an early answer: how long what the peer still sends is read and dropped */
#define AGX_HTTP_AHEAD (64u << 10) /* bytes a peer may send ahead of the answer it waits for */
#define AGX_HTTP_DROP (64u << 10)  /* bytes of a body read and dropped to keep a connection after an error */
#define AGX_HTTP_OUT (64u << 10)   /* bytes of heads and small answers of one connection */
#define AGX_CONDUIT_NAME 32        /* characters of the name of a conduit, hexadecimal digits */
#define AGX_HTTP_WAIT_MAX_S 86400  /* seconds that `Prefer: wait` is honoured for; above it is lowered to this */
#define AGX_SERVER_GATHER_BYTES (2u << 30) /* bytes of requests that are not whole; above: "Busy", not taken */
#define AGX_MAX_CONNECTIONS 4096           /* accepted connections of one server; more wait in the kernel's queue */

/* The fast wire, between our own ends. */
#define AGX_FAST_FRAME_MAX (256u << 10)    /* bytes of one frame with its head */
#define AGX_FAST_FRAGMENTS_MAX 4096        /* WebSocket frames that an intermediary may cut one into */
#define AGX_FAST_STREAMS_MAX 1024          /* requests under way on one connection; more wait at their sender */
#define AGX_FAST_SMALL_BYTES (64u << 10)   /* bytes of a value that goes before larger ones */
#define AGX_FAST_MIDDLE_BYTES (512u << 10) /* bytes of a value that never waits for larger ones to be over */
#define AGX_FAST_UNDER_WAY (512u << 20)    /* bytes of values above that under way at once; more wait at their sender */
#define AGX_FAST_GATHER_BYTES (1u << 30)   /* bytes of one connection's requests that are not whole; above: "Busy" */
#define AGX_FAST_OUT_LOW (256u << 10)      /* bytes that wait on a connection before replies wait in the ledger */

/* Socket.IO. */
#define AGX_SIO_SESSIONS_MAX 4096        /* Engine.IO sessions of one server; above: 503 */
#define AGX_SIO_PING_MS 25000            /* the server pings a session that often */
#define AGX_SIO_TIMEOUT_MS 300000        /* silence after a ping; above: the session is closed */
#define AGX_SIO_JOIN_MS 10000            /* from a session's beginning to the first namespace it joins */
#define AGX_SIO_UPGRADE_MS 10000         /* from the second transport's beginning to the upgrade */
#define AGX_SIO_PAYLOAD_PACKETS 16       /* packets in one answer to a polling GET: stock clients decode no more */
#define AGX_SIO_NAMESPACES_MAX 256       /* namespaces joined on one connection */
#define AGX_SIO_NAME_MAX 256             /* bytes of the name of a namespace, and of an event */
#define AGX_SIO_TEXT_MAX (64u << 10)     /* bytes of an event beside its bytes arguments */
#define AGX_SIO_BYTES_ARGS_MAX 16        /* bytes arguments of one event */
#define AGX_SIO_DEPTH_MAX 32             /* depth of the JSON of an event */
#define AGX_SIO_FRAGMENTS_MAX 65536      /* frames of one WebSocket message from a host */
#define AGX_SIO_FRAME_OUT (256u << 10)   /* bytes of one WebSocket frame to a host: control frames pass in between */
#define AGX_SIO_OUT_LOW (256u << 10)     /* bytes that wait on a connection before results wait in the ledger */
#define AGX_SIO_OUT_PACKETS 8192         /* packets that wait on a connection; above: it is closed */
#define AGX_SIO_ANSWERS_LOW 4096         /* answers that wait on a link; above: no more events are read from it */
#define AGX_SIO_ANSWERS_MAX (128u << 10) /* answers that wait on a link; above: it is closed */

/* Side channels: namespaces of plugins, and the reliable streams /log and /trace. */
#define AGX_HUB_SPACES_MAX 4096           /* namespaces known to the server at once */
#define AGX_HUB_OPEN_MAX 256              /* of them opened by workers */
#define AGX_EVENT_MAX (16u << 20)         /* bytes of the data of one event of a plugin; above, emit() refuses it */
#define AGX_HUB_HELD_EVENTS 1024          /* events of a namespace kept while nobody is there for them, each way */
#define AGX_HUB_HELD_BYTES (24u << 20)    /* bytes of them; the oldest goes first */
#define AGX_HUB_QUEUE_EVENTS 4096         /* events that wait for one host; the oldest goes first */
#define AGX_HUB_QUEUE_BYTES (48u << 20)   /* bytes of them */
#define AGX_HUB_STOP_EVENTS 1024          /* events that wait for hosts; above, workers are told to pause */
#define AGX_HUB_STOP_BYTES (4u << 20)     /* bytes of them, likewise; at half of either they may go on */
#define AGX_HUB_INBOUND_BYTES (64u << 20) /* bytes on their way to a worker above which events of hosts are dropped */
#define AGX_HUB_OUT_LOW (64u << 10)       /* bytes that wait on a connection before side channels wait */
#define AGX_STREAM_ITEMS 10000         /* items a stream keeps until acknowledged, unless a variable says otherwise */
#define AGX_STREAM_ITEMS_MAX 1000000   /* the most that variable may say */
#define AGX_STREAM_BYTES (8u << 20)    /* bytes of them; the oldest goes first and is counted */
#define AGX_STREAM_ITEM_MAX (1u << 20) /* bytes of one item; above it is counted as lost */
#define AGX_STREAM_BATCH_ITEMS 256     /* items in one event */
#define AGX_STREAM_BATCH_BYTES (64u << 10) /* bytes of them before a batch is full */
#define AGX_STREAM_WINDOW_MAX 65536        /* items in flight that a host may ask for */
#define AGX_EMIT_WAIT_S 5 /* seconds a worker that was told to pause waits before it emits all the same */

#define AGX_CODEC_MEMORY_BASE (8u << 20) /* bytes of objects made of one message, estimated: this much, */
#define AGX_CODEC_MEMORY_PER_BYTE 16     /* and as much for each byte */

/* Calls (the ledger). */
#define AGX_LEDGER_CALLS_MAX 65536         /* calls accepted or running at once; above: "Busy", not taken */
#define AGX_LEDGER_KEPT_MAX 4096           /* finished results kept for an acknowledgement; the oldest goes first */
#define AGX_LEDGER_KEPT_BYTES (512u << 20) /* bytes of them */
#define AGX_LEDGER_ITEM_BYTES (512u << 20) /* bytes of stream items that hosts have yet to consume */
#define AGX_LEDGER_INLINE_MS 30000         /* a result answered inline to a client with a session is kept so long */
#define AGX_EVICTION_NOTE_MS 60000       /* the log names a result that had to go for want of room this often at most */
#define AGX_LEDGER_WINDOW 4096           /* ids behind the newest one of a session that are told apart exactly */
#define AGX_LEDGER_SESSIONS_MAX 65536    /* sessions remembered; the longest unused one without calls goes first */
#define AGX_LEDGER_FOREIGN_MAX 1000000   /* retired ids not of our own form that are remembered, as 16-byte hashes */
#define AGX_LEDGER_FORGOTTEN_MAX 1000000 /* sessions that had to go whose newest counter is remembered */

/* The worker. */
#define AGX_WORKER_BOOT_MS 15000        /* spawn to `ready` or `boot_error` */
#define AGX_WORKER_BOOT_DEATHS 5        /* deaths at boot within AGX_WORKER_BOOT_WINDOW_MS that are a definite error */
#define AGX_WORKER_BOOT_WINDOW_MS 10000 /* see the line above */
#define AGX_WORKER_BACKOFF_MIN_MS 20    /* first pause before a respawn after a death at boot; doubles */
#define AGX_WORKER_BACKOFF_MAX_MS 2000  /* longest such pause */
#define AGX_WORKER_SHUTDOWN_MS 2000     /* `shutdown` to SIGTERM to SIGKILL, each step this long at most */
#define AGX_CANCEL_GRACE_MS 5000        /* after a `cancel` that names no grace: how long its call may still run */
#define AGX_CANCEL_GRACE_MAX_MS 600000  /* a longer grace is lowered to this */
#define AGX_WORKER_DRAIN_MS 60000       /* what else runs in a retired worker may take so long, then it is killed */
#define AGX_WORKER_RETIRED_MAX 4        /* retired workers alive at once; for one more the oldest is killed */
#define AGX_WORKER_FED_BYTES (1u << 20) /* bytes on their way to the worker above which further calls are held */
#define AGX_WORKER_QUEUE_BYTES (512u << 20) /* bytes of calls waiting for the worker; above: "Busy", not taken */
#define AGX_SOCKET_BYTES (256u << 10)       /* bytes asked for on a Unix socket, which has too few by itself */
#define AGX_SERVER_SPARE_BYTES (256u << 20) /* bytes of freed memory kept for large values, until a second's rest */
#define AGX_WORKER_HEALTHY_MS 1000          /* a worker that lasted so long, or was given a call, had a life */
#define AGX_WORKER_SPARE_IDLE_MS 100 /* the worker has answered nothing for so long: a spare is started beside it */
#define AGX_WORKER_SPARE_HURRY_MS 1 /* if a worker has died already, this long after the first answer of the next one */
#define AGX_WORKER_SPARE_BUSY_MS 5000 /* it has answered without such a pause for so long: likewise */
#define AGX_WORKER_SPARE_WAKE_MS 5000 /* a spare whose turn has come is ready in so long, or a fresh one is started */
#define AGX_WORKER_SPARE_PAUSE_MIN_MS 1000  /* a spare that died is replaced after so long; doubles while they die */
#define AGX_WORKER_SPARE_PAUSE_MAX_MS 60000 /* longest such pause */
#define AGX_WORKER_DRAIN_BYTES (512u << 20) /* bytes read of what a dead worker left in its pipes */
#define AGX_OUTPUT_TAIL_SHOWN (8u << 10)    /* bytes of the tail in one error text */
#define AGX_OUTPUT_PAUSE_MS 1000            /* text without a newline is passed on after this */
#define AGX_OUTPUT_TAIL (64u << 10)         /* bytes of the worker's last output kept for error texts */
#define AGX_OUTPUT_RELAY (4u << 20) /* bytes of a worker's output that are repeated on the server's standard error */
#define AGX_OUTPUT_READ (16u << 10) /* bytes of a worker's output read between two looks at calls */
#define AGX_OUTPUT_FLUSH_BYTES (4u << 20) /* bytes read from one pipe when a host asks for all there is */
#define AGX_OUTPUT_LINE (64u << 10)       /* bytes of a line of output before it is cut into pieces */

/* Processes that workers ask for. */
#define AGX_PROC_MAX 512                /* of them at once, of all workers of a server */
#define AGX_PROC_ARGS_BYTES (4u << 20)  /* bytes of the arguments and variables of one */
#define AGX_PROC_OUT_BYTES (64u << 10)  /* bytes of output in one frame */
#define AGX_PROC_IN_BYTES (256u << 10)  /* bytes of input on their way to one; above: it is ended */
#define AGX_PROC_QUEUE_BYTES (8u << 20) /* bytes on their way to a worker above which output is not read for a moment */
#define AGX_PROC_QUEUE_MS 20            /* that moment */
#define AGX_PROC_LINGER_MS 100          /* what a process left behind may hold its output open so long after its end */
#define AGX_PROC_LINGER_BYTES (2u << 20) /* bytes of output read after its end */
#define AGX_PROC_KILL_MS 5000            /* a tree is killed again and again for so long, then what is left is left */
#define AGX_PROC_KEEPER_MS 7000          /* a keeper that does not answer for so long is killed itself */
#define AGX_PROC_ROUSE_MS 250            /* one that does not answer is looked at so often: it may have been stopped */

/* The tunnel: HTTP in the sandbox, answered by the host. */
#define AGX_TUNNELS_MAX 8                  /* of them at once, of one server */
#define AGX_TUNNEL_PATHS_MAX 256           /* paths of one */
#define AGX_TUNNEL_PATH_MAX 240            /* bytes of one path */
#define AGX_TUNNEL_CONNECTIONS 1024        /* connections of one tunnel; more wait in the kernel's queue */
#define AGX_TUNNEL_CHUNK (64u << 10)       /* bytes of a body in one event */
#define AGX_TUNNEL_CREDIT (128u << 10)     /* bytes of a body on their way or unconsumed, each way of one exchange */
#define AGX_TUNNEL_READ (32u << 10)        /* bytes read from one connection at a time */
#define AGX_TUNNEL_BODY_MS 60000           /* a body that is wanted may pause so long; above: 408 */
#define AGX_TUNNEL_WINDOW_MAX_MS 604800000 /* the longest window that a host may ask for: a week */
#define AGX_TUNNEL_AWAY_MS 900000          /* a tunnel whose host is gone for so long is closed */
#define AGX_TUNNEL_ANSWERS_MAX 4096     /* small events that wait for one host; above, its questions are passed over */
#define AGX_TUNNEL_REPLY_FIELDS_MAX 200 /* header fields of a reply */

/* Logs. */
#define AGX_LOG_FILE_BYTES (64u << 20) /* bytes of a worker's log file before it is renamed and begun anew, once kept */
#define AGX_LOG_FILE_BUFFER (1u << 20) /* bytes of lines that wait to be written at the end of a turn of the loop */
#define AGX_LOG_SHRINK_BYTES (512u << 10) /* bytes that go of a replaced file at once, when nothing is written */
#define AGX_LOG_SHRINK_MS 100             /* between two such steps, and from the last writing to the first */
#define AGX_LOG_RETRY_MS 500              /* after a failed write: the file is not tried again before this */
#define AGX_LOG_FILES_OPEN 8              /* log files open at once */

/* The server. */
#define AGX_SERVER_DRAIN_MS 5000   /* SIGTERM to exit, whatever still runs */
#define AGX_SERVER_KILL_MS 1000    /* of them for killing what the worker left behind */
#define AGX_SERVER_BACKLOG 1024    /* connections waiting in the kernel to be accepted */
#define AGX_TOKEN_MAX 4096         /* bytes of the token file */
#define AGX_ALLOWED_MAX 64         /* entries of AGENTIX_ALLOWED_HOSTS, and of AGENTIX_ALLOWED_ORIGINS */
#define AGX_RELAY_BYTES (1u << 20) /* bytes of lines waiting for a slow reader of the server's standard error */

/* The host. */
#define AGX_CLIENT_CONNECTIONS_MAX 512    /* HTTP connections of one client; further calls wait for a free one */
#define AGX_CLIENT_IDLE_MAX 32            /* of them kept when idle */
#define AGX_CLIENT_IDLE_MS 30000          /* an idle connection is closed by the client after this */
#define AGX_HEALTH_BODY_MAX 4096          /* bytes of a /health answer */
#define AGX_CLIENT_HEALTH_TEXT 128        /* bytes of each text in it */
#define AGX_CLIENT_OPENING_MAX 32         /* connections being opened at once */
#define AGX_CLIENT_OPEN_MS 10000          /* from the wish for a connection to the server's proof */
#define AGX_CLIENT_FAST_FAILURES 2        /* connections of the fast wire lost in a row before a reply; then POSTs do */
#define AGX_CLIENT_GROW_MS 5              /* pause before the pool grows beyond AGX_CLIENT_IDLE_MAX again */
#define AGX_CLIENT_DRAINING_MAX 64        /* connections kept to hear out the reply to an abandoned call */
#define AGX_CLIENT_DRAIN_BODY (1u << 20)  /* bytes of such a reply; above: the connection is closed */
#define AGX_CLIENT_INTERIM_MAX 8          /* informational (1xx) replies to one request */
#define AGX_CLIENT_OUT_MAX (1u << 20)     /* bytes of a request's head and small body */
#define AGX_CLIENT_INLINE_MAX (16u << 10) /* bytes; larger arguments are sent from where they lie */
#define AGX_CLIENT_POLL_MIN_MS 20         /* first pause before asking again for a call that still runs; grows */
#define AGX_CLIENT_POLL_MAX_MS 500        /* longest such pause */
#define AGX_CLIENT_TRY_MIN_MS 20 /* first pause before a call is sent again that the server had no room for; doubles */
#define AGX_CLIENT_TRY_MAX_MS 1000        /* longest such pause */
#define AGX_CLIENT_ACKS_KEPT 4096         /* results consumed and not yet acknowledged; the oldest is forgotten */
#define AGX_CLIENT_ACKS_SENT 256          /* of them in one request */
#define AGX_CLIENT_ACKS_SAID 1024         /* said last on a link; said again on the next one, since they may be lost */
#define AGX_CLIENT_REASKS_MAX 8           /* times in a row that one link's server may say it never saw a call */
#define AGX_CLIENT_LINK_BYTES (64u << 20) /* bytes of events that wait to be sent on a link; more calls are held back */
#define AGX_CLIENT_LINK_PACKETS 4096      /* packets, likewise */
#define AGX_CLIENT_LINK_STEADY_MS 5000    /* a link that lasted so long was no failure when it ends */
#define AGX_CLIENT_LINK_FRAGMENTS 65536   /* frames of one WebSocket message from the server */
#define AGX_CLIENT_EMPTY_POLLS 16 /* long-polling answers in a row that say nothing, each at once: then it pauses */
#define AGX_CLIENT_EMPTY_PAUSE_MS 1000       /* for so long; "at once" is sooner than this */
#define AGX_CLIENT_HEARTBEAT_MAX_MS 3600000  /* longest ping interval, and longest ping timeout, that is accepted */
#define AGX_CLIENT_IDS_SENT 1024             /* ids in one `resume` or `ack` */
#define AGX_CLIENT_STREAM_WINDOW 256         /* items of one stream that may be on their way or unconsumed */
#define AGX_CLIENT_REPLY_BYTES (1u << 30)    /* bytes of one client's replies that are not whole; above: type "Busy" */
#define AGX_CLIENT_CREDIT_BYTES (512u << 10) /* bytes of items consumed that the server is told of at once */
#define AGX_CLIENT_ITEM_BYTES (512u << 20)   /* bytes of items that came and were not consumed, of one client */
#define AGX_CLIENT_INSTANCES 8               /* of the server that are told from new ones, should one be heard again */
#define AGX_CLIENT_CANCELS_KEPT 4096         /* cancels that wait for a link; the oldest is forgotten */
#define AGX_CLIENT_SPACES_MAX 255            /* side channels of one client, /log and /trace included */
#define AGX_CLIENT_SIDE_MS 20 /* from the first connection to the link for logs alone: the first call goes first */
#define AGX_CLIENT_SIDE_FAILURES 20  /* a link wanted for side channels alone is given up after so many, till a call */
#define AGX_CLIENT_SIDE_REST_MS 1000 /* one that is needed, or refused, is tried again after so long */
#define AGX_CLIENT_SIDE_EVENTS 1024  /* events of one side channel that wait for the link */
#define AGX_CLIENT_SIDE_BYTES (16u << 20) /* bytes of them, one event excepted */

/* Values a sandbox returns: the restricted pickle decoder. "Per byte" counts bytes of the pickle. */
#define AGX_VALUE_INT_BYTES (1u << 20)     /* bytes of one integer in binary form */
#define AGX_VALUE_INT_DIGITS 4300          /* digits of one integer, fraction or decimal in text form */
#define AGX_VALUE_DECIMAL_CHARS 10000      /* characters of one Decimal */
#define AGX_VALUE_NESTING 1000             /* tuples in tuples: hash() of one recurses in C without a guard */
#define AGX_VALUE_CHAINED 512              /* deques and defaultdicts directly in one another, three deep or more */
#define AGX_VALUE_MARKS 65536              /* marks that are open at once */
#define AGX_VALUE_MEMORY_BASE (12u << 20)  /* bytes of objects made, estimated: this much, */
#define AGX_VALUE_MEMORY_PER_BYTE 40       /* and as much for each byte */
#define AGX_VALUE_COPY_BASE (1u << 20)     /* bytes of text and data made of others the value has already: this much, */
#define AGX_VALUE_COPY_PER_BYTE 4          /* and as much for each byte */
#define AGX_VALUE_QUIET_BYTES (256u << 10) /* a pickle this long is loaded with the garbage collector at rest */
#define AGX_VALUE_GC_BYTES (256u << 20)    /* bytes of such pickles after which everything is collected */
#define AGX_VALUE_HASH_BASE (1u << 20)     /* parts hashed to make keys of tuples and frozensets: so many, */
#define AGX_VALUE_HASH_PER_BYTE 4          /* and so many for each byte */
#define AGX_VALUE_CPU_BASE_NS 250000000u   /* CPU time of one decode: this long, */
#define AGX_VALUE_CPU_PER_BYTE_NS 100      /* so long for each byte, */
#define AGX_VALUE_CPU_PER_KEY_NS 1000      /* so long for each key stored and each large integer, */
#define AGX_VALUE_CPU_PER_OBJECT_NS 8000   /* so long for each object rebuilt, */
#define AGX_VALUE_CPU_PER_CODE_NS 200000   /* and so long for each time code of an admitted class runs */
#define AGX_VALUE_ERROR_CHARS 200          /* characters of each name or text of the pickle in an error */

/* Bundles that are deployed. */
#define AGX_BUNDLE_MIB_MAX 65536          /* MiB that one unpacks to */
#define AGX_BUNDLE_MEMBERS_MAX (1u << 20) /* files, directories and links of one */
#define AGX_BUNDLE_DEPTH_MAX 120          /* directories inside one another */
#define AGX_BUNDLE_RATIO_MAX 200          /* unpacked to packed bytes of one, */
#define AGX_BUNDLE_RATIO_FREE (64u << 20) /* beyond so many unpacked bytes */
#define AGX_BUNDLE_NAME_MAX 4000          /* bytes of a member's name, and of a link's target */

/* Container engines. */
#define AGX_ENGINE_RUN_MS 1800000     /* one `run` with the pull of its image */
#define AGX_ENGINE_ASK_MS 20000       /* one `inspect`, `ps` or `logs` */
#define AGX_ENGINE_REMOVE_MS 60000    /* one `rm` */
#define AGX_ENGINE_ABANDON_MS 10000   /* a cancelled `run` that is past its pull may end by itself for so long */
#define AGX_ENGINE_SETTLE_MS 2000     /* after a killed `run`: until its container is looked for once more */
#define AGX_ENGINE_PROBE_FIRST_MS 400 /* how long a runtime is asked before its container is looked at, at first */
#define AGX_ENGINE_PROBE_MS 1000      /* and later */
#define AGX_ENGINE_RETRIES 3          /* of a `run` that met a transient error of a registry */
#define AGX_ENGINE_RETRY_MS 2000      /* before the first of them; doubled each time */
#define AGX_ENGINE_ENV_MAX (4u << 20) /* bytes of a sandbox's environment, of each of its two files */

/* The cape program. */
#define AGX_CAPE_CALL_MS 60000       /* one call of it */
#define AGX_CAPE_POLL_FIRST_MS 100   /* before a request is looked at again, at first; grows to the next */
#define AGX_CAPE_POLL_MS 2000        /* and later */
#define AGX_CAPE_PROBE_MS 2000       /* how long a runtime is asked before its request is looked at */
#define AGX_CAPE_CANCELS 3           /* how often `cape cancel` is said before it is given up */
#define AGX_CAPE_CANCEL_PAUSE_MS 500 /* between them */
#define AGX_CAPE_SCRIPT_MAX 16384    /* bytes of the workload's shell script */

#endif
