/* What came from a runtime becomes objects. Small values are copied, large ones keep the buffer they came in. Of those that came
 * by the fast wire large bytes are objects already (client/landing.h). */
#include "client.h"

#include "landed.h"

PyObject *client_value_take(client_core *core, agx_buf *bytes, agx_view value)
{
        PyObject *body, *view;

        if (value.n <= CLIENT_SCRATCH)
                return PyBytes_FromStringAndSize(value.p, (Py_ssize_t)value.n);
        body = agx_landed_body(core->body_type, bytes, value, NULL);
        view = body ? PyMemoryView_FromObject(body) : NULL;
        Py_XDECREF(body);
        return view;
}

PyObject *client_value_landed(client_core *core, agx_client_landed *landed, agx_buf *bytes, agx_view value)
{
        return agx_landed_body(core->body_type, bytes, value, landed);
}
