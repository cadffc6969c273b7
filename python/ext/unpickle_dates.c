/*
 * Dates, times, durations and fixed zones.
 *
 * The C types behind them take their pickled state, a few bytes, nearly unchecked. So every field is checked here as
 * their ordinary constructors would, and then the state is handed over as it is.
 */
#include "unpickle.h"

enum {
        SIZE_DATE = 64,
        DATE_BYTES = 4,
        TIME_BYTES = 6,
        FOLD = 0x80, /* in the first byte of a time, in the month of a datetime */
};

static bool is_leap(unsigned year)
{
        return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static bool is_date(const unsigned char *b, unsigned fold)
{
        static const unsigned char DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
        unsigned year = b[0] * 256u + b[1], month = b[2] & ~fold, day = b[3];
        if (year < 1 || year > 9999 || month < 1 || month > 12)
                return false;
        const unsigned days = month == 2 && is_leap(year) ? 29 : DAYS[month - 1];
        return day >= 1 && day <= days;
}

static bool is_time(const unsigned char *b, unsigned fold)
{
        return (b[0] & ~fold) < 24 && b[1] < 60 && b[2] < 60 && b[3] * 65536u + b[4] * 256u + b[5] < 1000000;
}

/* The state, if the first argument is bytes of that length and the second, if there is one, a zone. */
static const unsigned char *state_of(agx_unpickler *u, PyObject *args, Py_ssize_t length, Py_ssize_t max_args)
{
        PyObject *state = agx_unpickle_arg(args, 0), *zone = agx_unpickle_arg(args, 1);
        if (!state || !PyBytes_CheckExact(state) || PyBytes_Size(state) != length || PyTuple_Size(args) > max_args)
                return NULL;
        if (zone && zone != Py_None && !agx_unpickle_is(u, zone, agx_build_timezone))
                return NULL;
        return (const unsigned char *)PyBytes_AsString(state);
}

static PyObject *build(agx_unpickler *u, PyObject *callable, PyObject *args, bool good)
{
        if (!good)
                return agx_unpickle_bad(u, "fields out of range, or a zone other than datetime.timezone");
        return agx_unpickle_charge(u, SIZE_DATE) < 0 ? NULL : PyObject_Call(callable, args, NULL);
}

PyObject *agx_build_date(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        const unsigned char *b = state_of(u, args, DATE_BYTES, 1);
        return build(u, callable, args, b && is_date(b, 0));
}

PyObject *agx_build_time(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        const unsigned char *b = state_of(u, args, TIME_BYTES, 2);
        return build(u, callable, args, b && is_time(b, FOLD));
}

PyObject *agx_build_datetime(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        const unsigned char *b = state_of(u, args, DATE_BYTES + TIME_BYTES, 2);
        return build(u, callable, args, b && is_date(b, FOLD) && is_time(b + DATE_BYTES, 0));
}

PyObject *agx_build_timedelta(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        bool good = PyTuple_Size(args) == 3;
        for (Py_ssize_t i = 0; good && i < 3; i++) {
                int overflow = 1;
                PyObject *part = PyTuple_GetItem(args, i);
                good = PyLong_CheckExact(part);
                if (good)
                        (void)PyLong_AsLongLongAndOverflow(part, &overflow);
                good = good && !overflow;
        }
        if (!good)
                return agx_unpickle_bad(u, "only from three integers");
        return agx_unpickle_charge(u, SIZE_DATE) < 0 ? NULL : PyObject_Call(callable, args, NULL);
}

/* The constructor checks the offset's range and gives timezone.utc for zero. */
PyObject *agx_build_timezone(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *offset = agx_unpickle_arg(args, 0), *name = agx_unpickle_arg(args, 1);
        if (!offset || !agx_unpickle_is(u, offset, agx_build_timedelta) || PyTuple_Size(args) > 2 ||
            (name && !PyUnicode_CheckExact(name)))
                return agx_unpickle_bad(u, "only from a timedelta, with or without a name");
        return agx_unpickle_charge(u, SIZE_DATE) < 0 ? NULL : PyObject_Call(callable, args, NULL);
}
