/*
 * The garbage collector during a large load.
 *
 * A load makes containers by the million and no garbage. Each time their number has grown by a quarter, the collector
 * would look at all of them, with the interpreter held: other threads, the host's event loop among them, would stand
 * still for as long as that takes, wherever the load itself runs. So it rests while large loads run, and what they made
 * is moved to its oldest generation at once (freeze and unfreeze do that, without looking at anything), where it stays
 * until the next full collection. Young garbage of other threads is moved along; a full collection after so many bytes
 * of pickles sees to it that it cannot pile up.
 *
 * A collector that the host has switched off stays off; objects it has frozen stay frozen, then nothing is moved.
 */
#include "unpickle.h"

/* Guarded by the interpreter lock. */
static struct {
        unsigned loads; /* that run */
        bool resting;   /* it was on before */
        uint64_t bytes; /* of the pickles loaded since the last full collection here */
} rest;

void agx_unpickle_gc_rest(void)
{
        if (rest.loads++ == 0)
                rest.resting = PyGC_Disable();
}

/* Calls a function of the module gc. New reference. */
static PyObject *gc_call(PyObject *gc, const char *name)
{
        return PyObject_CallMethod(gc, name, NULL);
}

static void promote(void)
{
        PyObject *gc = PyImport_ImportModule("gc");
        PyObject *frozen = gc ? gc_call(gc, "get_freeze_count") : NULL;
        if (frozen && PyLong_AsLong(frozen) == 0) {
                Py_XDECREF(gc_call(gc, "freeze"));
                Py_XDECREF(gc_call(gc, "unfreeze"));
        }
        Py_XDECREF(frozen);
        Py_XDECREF(gc);
        PyErr_Clear();
}

void agx_unpickle_gc_resume(size_t len)
{
        rest.loads--;
        if (!rest.resting)
                return;
        promote();
        rest.bytes += len;
        if (rest.bytes >= AGX_VALUE_GC_BYTES) {
                rest.bytes = 0;
                PyGC_Enable();
                PyGC_Collect();
                if (rest.loads)
                        PyGC_Disable();
        } else if (!rest.loads) {
                PyGC_Enable();
        }
}
