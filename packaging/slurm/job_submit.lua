-- Counts what a job asks of rgpu as Slurm licences, so that Slurm starts the job when there is enough: a thousand for each GPU, or as many
-- thousandths as --rgpu-share says. Put this file beside slurm.conf, and into that
--
--     JobSubmitPlugins=lua
--     Licenses=rgpu:8000        # a thousand for each GPU that the broker has at most
--
-- Where there is a job_submit.lua already, take over the functions and call `rgpu.submit(job_desc)` in its slurm_job_submit.

local rgpu = {
    -- The licence's name, as in slurm.conf and of `rgpu slurm sync --licence`.
    licence = "rgpu",
    -- Bytes of memory of one GPU, such as 80 * 2^30: a job that asks for a larger part of the memory than of the time is counted by its
    -- memory. nil counts the time alone.
    gpu_memory = nil,
    -- The feature of the nodes that have the plugin, such as "rgpu": jobs that ask for GPUs go to those alone. nil for all nodes.
    feature = nil,
}

-- What the plugin has written down of the options, which only it understands: gpus=N,memory=BYTES,share=THOUSANDTHS.
function rgpu.request(job_desc)
    local environment = job_desc.spank_job_env
    if type(environment) ~= "table" then
        return nil
    end
    for _, entry in pairs(environment) do
        local gpus, memory, share = string.match(entry, "^RGPU_REQUEST=gpus=(%d+),memory=(%d+),share=(%d+)$")
        if gpus then
            return tonumber(gpus), tonumber(memory), tonumber(share)
        end
    end
    return nil
end

-- How many licences that is.
function rgpu.count(gpus, memory, share)
    local part = share
    if rgpu.gpu_memory then
        part = math.max(part, math.min(1000, math.ceil(memory * 1000 / rgpu.gpu_memory)))
    end
    return math.floor(gpus * part)
end

-- Whether a list of licences names ours.
function rgpu.named(licences)
    for name in string.gmatch(licences or "", "[^,;:]+") do
        if name == rgpu.licence then
            return true
        end
    end
    return false
end

function rgpu.submit(job_desc)
    local gpus, memory, share = rgpu.request(job_desc)
    if not gpus then
        return
    end
    -- Who names the licence himself has counted himself.
    if not rgpu.named(job_desc.licenses) then
        local own = string.format("%s:%d", rgpu.licence, rgpu.count(gpus, memory, share))
        if job_desc.licenses and job_desc.licenses ~= "" then
            own = job_desc.licenses .. "," .. own
        end
        job_desc.licenses = own
    end
    if rgpu.feature then
        if job_desc.features and job_desc.features ~= "" then
            job_desc.features = job_desc.features .. "&" .. rgpu.feature
        else
            job_desc.features = rgpu.feature
        end
    end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    rgpu.submit(job_desc)
    return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return slurm.SUCCESS
end

return slurm.SUCCESS
