/* A value on the line takes the place of all others, those of a list included: nothing is added up. */
#include "cli/settle.h"

static int note_line(agx_settings *s, agx_setting_id id, const char *text, const agx_strv *list)
{
        agx_setting_value *value = &s->of[id];

        agx_strv_deinit(&value->items);
        value->origin = AGX_ORIGIN_LINE;
        value->from = NULL;
        if (text)
                agx_strv_add_str(&value->items, text);
        for (size_t i = 0; list && i < list->count; i++)
                agx_strv_add_str(&value->items, list->items[i]);
        return agx_strv_end(&value->items);
}

static int settle_list(agx_settings *s, agx_setting_id id, agx_strv *place)
{
        const agx_strv *items = &s->of[id].items;

        if (place->count)
                return note_line(s, id, NULL, place);
        for (size_t i = 0; i < items->count; i++)
                agx_strv_add_str(place, items->items[i]);
        return agx_strv_end(place);
}

static int settle_one(agx_settings *s, const agx_opt *opt, void *place)
{
        agx_setting_id id = opt->setting;
        int *on = place;
        const char **text = place;

        switch (opt->kind) {
        case AGX_OPT_LIST:
                return settle_list(s, id, place);
        case AGX_OPT_SWITCH:
                if (*on)
                        return note_line(s, id, *on > 0 ? "true" : "false", NULL);
                *on = agx_settings_switch(s, id);
                return 0;
        default:
                if (*text)
                        return note_line(s, id, *text, NULL);
                *text = agx_settings_text(s, id);
                return 0;
        }
}

int agx_settle(const agx_opt_set *sets, agx_settings *s)
{
        int r = 0;

        for (; sets->table; sets++)
                for (const agx_opt *opt = sets->table; !r && opt->kind; opt++)
                        if (opt->setting)
                                r = settle_one(s, opt, (char *)sets->values + opt->offset);
        return r;
}
