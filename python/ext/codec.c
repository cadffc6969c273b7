/* msgpack to Python objects and back: agentix._core.pack and unpack, under agentix.runtime.shared.
 *
 * What the format has of its own is done here; everything else goes through a function of the caller's: `other(obj)` gives
 * an ExtType, or something that can be packed, in the object's place; `ext(code, data)` gives what an extension stands for.
 * Both ways nesting is bounded by AGX_MAX_NESTING; nothing is sized from a count before the bytes are there. */
#include "state.h"

#include "proto/limits.h"
#include "wire/msgpack.h"

typedef struct packer {
        agx_buf out;
        agx_mp_writer w;
        PyObject *other; /* NULL: none */
        unsigned depth;
} packer;

static int pack_one(packer *p, PyObject *obj);

static int written(const packer *p)
{
        int r = agx_mp_writer_end(&p->w);

        if (r == AGX_BUF_E_FULL)
                PyErr_Format(PyExc_OverflowError, "the message is larger than %u bytes", AGX_MAX_MESSAGE);
        else if (r)
                PyErr_NoMemory();
        return r ? -1 : 0;
}

static int enter(packer *p)
{
        if (++p->depth <= AGX_MAX_NESTING)
                return 0;
        PyErr_Format(PyExc_ValueError, "nested more than %d deep", AGX_MAX_NESTING);
        return -1;
}

static int pack_int(packer *p, PyObject *obj)
{
        int overflow;
        long long i = PyLong_AsLongLongAndOverflow(obj, &overflow);
        unsigned long long u;

        if (i == -1 && PyErr_Occurred())
                return -1;
        if (!overflow) {
                if (i < 0)
                        agx_mp_put_int(&p->w, i);
                else
                        agx_mp_put_uint(&p->w, (uint64_t)i);
                return written(p);
        }
        u = overflow > 0 ? PyLong_AsUnsignedLongLong(obj) : 0;
        if (overflow < 0 || (u == (unsigned long long)-1 && PyErr_Occurred())) {
                PyErr_Clear();
                PyErr_SetString(PyExc_OverflowError, "msgpack has integers of 64 bits");
                return -1;
        }
        agx_mp_put_uint(&p->w, u);
        return written(p);
}

static int pack_str(packer *p, PyObject *obj)
{
        Py_ssize_t n;
        const char *text = PyUnicode_AsUTF8AndSize(obj, &n);

        if (!text)
                return -1;
        agx_mp_put_str(&p->w, agx_view_of(text, (size_t)n));
        return written(p);
}

static int pack_bytes(packer *p, PyObject *obj)
{
        Py_buffer bytes;

        if (PyObject_GetBuffer(obj, &bytes, PyBUF_SIMPLE) < 0)
                return -1;
        agx_mp_put_bin(&p->w, agx_view_of(bytes.len ? bytes.buf : "", (size_t)bytes.len));
        PyBuffer_Release(&bytes);
        return written(p);
}

static int pack_sequence(packer *p, PyObject *obj)
{
        bool list = PyList_Check(obj);
        Py_ssize_t n = list ? PyList_Size(obj) : PyTuple_Size(obj);

        if (enter(p) < 0)
                return -1;
        agx_mp_put_array(&p->w, (size_t)n);
        for (Py_ssize_t i = 0; i < n; ++i) {
                PyObject *item;
                int r;

                if (list && i >= PyList_Size(obj)) {
                        PyErr_SetString(PyExc_RuntimeError, "the list changed while it was packed");
                        return -1;
                }
                item = Py_NewRef(list ? PyList_GetItem(obj, i) : PyTuple_GetItem(obj, i));
                r = pack_one(p, item);
                Py_DECREF(item);
                if (r < 0)
                        return -1;
        }
        --p->depth;
        return written(p);
}

static int pack_dict(packer *p, PyObject *obj)
{
        Py_ssize_t at = 0, n = PyDict_Size(obj);
        PyObject *key, *value;

        if (enter(p) < 0)
                return -1;
        agx_mp_put_map(&p->w, (size_t)n);
        while (PyDict_Next(obj, &at, &key, &value)) {
                int r;

                Py_INCREF(key);
                Py_INCREF(value);
                r = --n < 0 ? -1 : pack_one(p, key);
                if (!r)
                        r = pack_one(p, value);
                Py_DECREF(key);
                Py_DECREF(value);
                if (r < 0)
                        break;
        }
        if (n) {
                if (!PyErr_Occurred())
                        PyErr_SetString(PyExc_RuntimeError, "the dict changed while it was packed");
                return -1;
        }
        --p->depth;
        return PyErr_Occurred() ? -1 : written(p);
}

/* The head of an extension: fixext where the size has one. */
static void put_ext_head(packer *p, int code, size_t n)
{
        uint8_t head[6];
        size_t size = 0;

        if (n == 1 || n == 2 || n == 4 || n == 8 || n == 16) {
                head[size++] = (uint8_t)(0xd4 + (n == 1 ? 0 : n == 2 ? 1 : n == 4 ? 2 : n == 8 ? 3 : 4));
        } else if (n < 256) {
                head[size++] = 0xc7;
                head[size++] = (uint8_t)n;
        } else {
                bool large = n > 0xffff;

                head[size++] = large ? 0xc9 : 0xc8;
                for (int shift = large ? 24 : 8; shift >= 0; shift -= 8)
                        head[size++] = (uint8_t)(n >> shift);
        }
        head[size++] = (uint8_t)(int8_t)code;
        if (!p->w.error)
                p->w.error = agx_buf_append(&p->out, head, size);
}

/* An ExtType: a tuple (code, data) that has these names. True if it was one, whatever came of it. */
static bool pack_ext(packer *p, PyObject *obj, int *r)
{
        PyObject *data;
        Py_buffer bytes;
        long code;

        if (!PyTuple_Check(obj) || PyTuple_Size(obj) != 2 || !PyObject_HasAttrString(obj, "code") ||
            !PyObject_HasAttrString(obj, "data"))
                return false;
        code = PyLong_AsLong(PyTuple_GetItem(obj, 0));
        data = PyTuple_GetItem(obj, 1);
        *r = -1;
        if (code == -1 && PyErr_Occurred())
                return true;
        if (code < -128 || code > 127) {
                PyErr_SetString(PyExc_ValueError, "an extension's code is a number from -128 to 127");
                return true;
        }
        if (PyObject_GetBuffer(data, &bytes, PyBUF_SIMPLE) < 0)
                return true;
        put_ext_head(p, (int)code, (size_t)bytes.len);
        if (!p->w.error)
                p->w.error = agx_buf_append(&p->out, bytes.len ? bytes.buf : "", (size_t)bytes.len);
        PyBuffer_Release(&bytes);
        *r = written(p);
        return true;
}

static int pack_other(packer *p, PyObject *obj)
{
        PyObject *stand_in;
        int r;

        if (!p->other) {
                PyErr_Format(PyExc_TypeError, "%R cannot be packed", Py_TYPE(obj));
                return -1;
        }
        if (enter(p) < 0)
                return -1;
        stand_in = PyObject_CallFunctionObjArgs(p->other, obj, NULL);
        r = stand_in ? pack_one(p, stand_in) : -1;
        Py_XDECREF(stand_in);
        --p->depth;
        return r;
}

static int pack_one(packer *p, PyObject *obj)
{
        int r;

        if (obj == Py_None)
                agx_mp_put_nil(&p->w);
        else if (obj == Py_True || obj == Py_False)
                agx_mp_put_bool(&p->w, obj == Py_True);
        else if (PyUnicode_Check(obj))
                return pack_str(p, obj);
        else if (PyLong_Check(obj))
                return pack_int(p, obj);
        else if (PyFloat_Check(obj))
                agx_mp_put_float(&p->w, PyFloat_AsDouble(obj));
        else if (PyBytes_Check(obj) || PyByteArray_Check(obj) || PyMemoryView_Check(obj))
                return pack_bytes(p, obj);
        else if (PyDict_Check(obj))
                return pack_dict(p, obj);
        else if (pack_ext(p, obj, &r))
                return r;
        else if (PyList_Check(obj) || PyTuple_Check(obj))
                return pack_sequence(p, obj);
        else
                return pack_other(p, obj);
        return written(p);
}

static PyObject *codec_pack(PyObject *module, PyObject *args)
{
        packer p = {.out = AGX_BUF_NULL(AGX_MAX_MESSAGE)};
        PyObject *obj, *other = Py_None, *bytes = NULL;

        (void)module;
        if (!PyArg_ParseTuple(args, "O|O:pack", &obj, &other))
                return NULL;
        p.w = agx_mp_writer_on(&p.out);
        p.other = other == Py_None ? NULL : other;
        if (pack_one(&p, obj) == 0)
                bytes = PyBytes_FromStringAndSize(agx_buf_view(&p.out).p, (Py_ssize_t)p.out.len);
        agx_buf_deinit(&p.out);
        return bytes;
}

/* ---- unpacking ---- */

typedef struct unpacker {
        agx_mp_reader r;
        size_t budget; /* bytes that the objects may yet take, estimated */
        PyObject *ext; /* NULL: none */
        unsigned depth;
} unpacker;

static PyObject *unpack_one(unpacker *u);

static PyObject *malformed(const char *why)
{
        return PyErr_Format(PyExc_ValueError, "malformed msgpack: %s", why);
}

/* What one object costs besides its bytes. */
enum { COST_ITEM = 8, COST_LIST = 64, COST_PAIR = 96, COST_DICT = 72, COST_BYTES = 56, COST_NUMBER = 32 };

static bool afford(unpacker *u, size_t n, size_t each)
{
        size_t cost = n > SIZE_MAX / each ? SIZE_MAX : n * each;

        if (cost <= u->budget) {
                u->budget -= cost;
                return true;
        }
        PyErr_SetString(PyExc_ValueError, "malformed msgpack: it would take far more memory than it has bytes");
        return false;
}

static PyObject *unpack_array(unpacker *u, size_t n)
{
        PyObject *list = PyList_New(0);

        for (size_t i = 0; list && i < n; ++i) {
                PyObject *item = unpack_one(u);

                if (!item || PyList_Append(list, item) < 0)
                        Py_CLEAR(list);
                Py_XDECREF(item);
        }
        return list;
}

static PyObject *unpack_map(unpacker *u, size_t n)
{
        PyObject *dict = PyDict_New();

        for (size_t i = 0; dict && i < n; ++i) {
                PyObject *key = unpack_one(u), *value = key ? unpack_one(u) : NULL;

                if (value && (PyList_Check(key) || PyDict_Check(key))) {
                        malformed("a container is a key");
                        Py_CLEAR(dict);
                } else if (!value || PyDict_SetItem(dict, key, value) < 0) {
                        Py_CLEAR(dict);
                }
                Py_XDECREF(key);
                Py_XDECREF(value);
        }
        return dict;
}

static PyObject *unpack_container(unpacker *u, const agx_mp_token *t)
{
        PyObject *container;

        if (u->depth >= AGX_MAX_NESTING)
                return PyErr_Format(PyExc_ValueError, "malformed msgpack: nested more than %d deep", AGX_MAX_NESTING);
        if (t->kind == AGX_MP_MAP ? !afford(u, 1, COST_DICT) || !afford(u, t->count, COST_PAIR)
                                  : !afford(u, 1, COST_LIST) || !afford(u, t->count, COST_ITEM))
                return NULL;
        ++u->depth;
        container = t->kind == AGX_MP_MAP ? unpack_map(u, t->count) : unpack_array(u, t->count);
        --u->depth;
        return container;
}

static PyObject *unpack_ext(const unpacker *u, const agx_mp_token *t)
{
        if (!u->ext)
                return malformed("an extension");
        return PyObject_CallFunction(u->ext, "iy#", (int)t->ext_type, t->v.n ? t->v.p : "", (Py_ssize_t)t->v.n);
}

static PyObject *unpack_one(unpacker *u)
{
        agx_mp_token t = agx_mp_next(&u->r);

        switch (t.kind) {
        case AGX_MP_NIL:
                return Py_NewRef(Py_None);
        case AGX_MP_BOOL:
                return PyBool_FromLong(t.b);
        case AGX_MP_INT:
                return !afford(u, 1, COST_NUMBER) ? NULL : PyLong_FromLongLong(t.i);
        case AGX_MP_UINT:
                return t.u >= 256 && !afford(u, 1, COST_NUMBER) ? NULL : PyLong_FromUnsignedLongLong(t.u);
        case AGX_MP_FLOAT:
                return !afford(u, 1, COST_NUMBER) ? NULL : PyFloat_FromDouble(t.d);
        case AGX_MP_STR:
                return !afford(u, 1, COST_BYTES) ? NULL
                                                 : PyUnicode_DecodeUTF8(t.v.n ? t.v.p : "", (Py_ssize_t)t.v.n, NULL);
        case AGX_MP_BIN:
                return !afford(u, 1, COST_BYTES) ? NULL
                                                 : PyBytes_FromStringAndSize(t.v.n ? t.v.p : "", (Py_ssize_t)t.v.n);
        case AGX_MP_ARRAY:
        case AGX_MP_MAP:
                return unpack_container(u, &t);
        case AGX_MP_EXT:
                return unpack_ext(u, &t);
        case AGX_MP_END:
                return malformed("it ends too early");
        case AGX_MP_ERROR:
                break;
        }
        return malformed(u->r.error ? u->r.error : "it cannot be read");
}

static PyObject *codec_unpack(PyObject *module, PyObject *args)
{
        PyObject *ext = Py_None, *obj;
        Py_buffer data;
        unpacker u = {.depth = 0};

        (void)module;
        if (!PyArg_ParseTuple(args, "y*|O:unpack", &data, &ext))
                return NULL;
        u.r = agx_mp_reader_on(agx_view_of(data.len ? data.buf : "", (size_t)data.len));
        u.budget = AGX_CODEC_MEMORY_BASE + AGX_CODEC_MEMORY_PER_BYTE * (size_t)data.len;
        u.ext = ext == Py_None ? NULL : ext;
        obj = unpack_one(&u);
        if (obj && !agx_mp_done(&u.r)) {
                Py_CLEAR(obj);
                malformed("bytes follow the value");
        }
        PyBuffer_Release(&data);
        return obj;
}

static PyMethodDef codec_functions[] = {
        {"pack", codec_pack, METH_VARARGS,
         "pack(obj, other=None, /)\n--\n\nAs msgpack; other(obj) stands in for what it has no form for."},
        {"unpack", codec_unpack, METH_VARARGS,
         "unpack(data, ext=None, /)\n--\n\nThe one value that `data` holds; ext(code, data) makes extensions."},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_codec(PyObject *module)
{
        return PyModule_AddFunctions(module, codec_functions);
}
