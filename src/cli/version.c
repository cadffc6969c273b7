/* agentix version: the version of this executable, for people and for programs. */
#include "cli/commands.h"
#include "wire/json.h"

static int run(agx_cli *cli, void *values)
{
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(4096);
        agx_json_writer w = agx_json_writer_on(&json);

        (void)values;
        if (!cli->say.json) {
                agx_say_data(&cli->say, "agentix %s\n", AGX_VERSION);
                return AGX_EXIT_OK;
        }
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("version"));
        agx_json_put_string(&w, AGX_VIEW(AGX_VERSION));
        agx_json_put_object_end(&w);
        if (agx_json_writer_end(&w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, &json);
        return AGX_EXIT_OK;
}

const agx_command agx_command_version = {
        .name = "version",
        .summary = "Show the version",
        .format = true,
        .plain = true,
        .run = run,
};
