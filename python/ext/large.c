#include "large.h"

#include "base/huge.h"

#include <string.h>

enum { COPY_ALONE = 1 << 20 /* bytes that are copied without the interpreter lock */ };

void agx_ext_copy(void *to, agx_view v)
{
        if (v.n < COPY_ALONE) {
                if (v.n)
                        memcpy(to, v.p, v.n);
                return;
        }
        Py_BEGIN_ALLOW_THREADS;
        memcpy(to, v.p, v.n);
        Py_END_ALLOW_THREADS;
}

PyObject *agx_ext_bytes(agx_view v)
{
        PyObject *bytes = PyBytes_FromStringAndSize(v.n < COPY_ALONE ? v.p : NULL, (Py_ssize_t)v.n);

        if (bytes && v.n >= COPY_ALONE) {
                agx_huge(PyBytes_AsString(bytes), v.n);
                agx_ext_copy(PyBytes_AsString(bytes), v);
        }
        return bytes;
}
