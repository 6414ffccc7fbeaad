"""Flags of ``mace_run_train`` about the run: name, folders, processes, checkpoints, tables, records."""

from mace.arguments.flags import ON, REQUIRED, Flag, FlagGroup
from mace.arguments.limits import AT_LEAST_ONE, POSITIVE, SEED
from mace.arguments.parsing import bool_or_auto, str2bool

_DIELECTRIC = "dielectric models"

ERROR_TABLES = (
    "Fermi_PerAtomRMSE",
    "PerAtomRMSE",
    "TotalRMSE",
    "PerAtomRMSEstressvirials",
    "PerAtomMAEstressvirials",
    "PerAtomMAE",
    "TotalMAE",
    "DipoleRMSE",
    "DipoleMAE",
    "EnergyDipoleRMSE",
    "DipolePolarRMSE",
)
_LATER_TABLES = {"DipolePolarRMSE": _DIELECTRIC}

# What --wandb_log_hypers names unless told otherwise.
WANDB_HYPERS = (
    "num_channels",
    "max_L",
    "correlation",
    "lr",
    "swa_lr",
    "weight_decay",
    "batch_size",
    "max_num_epochs",
    "start_swa",
    "energy_weight",
    "forces_weight",
)

RUN = FlagGroup(
    "run",
    (
        Flag(
            "--name", str, REQUIRED, "name of the run: first half of its tag, stem of the final model files"
        ),
        Flag("--seed", int, 123, "seed of weights, split and loaders; second half of the tag", limit=SEED),
        Flag("--work_dir", str, ".", "base of every folder that is not given"),
        Flag("--log_dir", str, None, "logs (<work_dir>/logs)"),
        Flag("--model_dir", str, None, "final models (<work_dir>)"),
        Flag("--checkpoints_dir", str, None, "checkpoints and models by tag (<work_dir>/checkpoints)"),
        Flag("--results_dir", str, None, "errors and losses, JSON lines (<work_dir>/results)"),
        Flag(
            "--downloads_dir",
            str,
            None,
            "downloaded models (<work_dir>/downloads)",
            later="foundation models",
        ),
        Flag("--log_level", str, "INFO", "level of console and log, a name or a number"),
        Flag("--progress", bool_or_auto, None, "progress bar: yes, no or auto (on a terminal only)"),
        Flag("--dry_run", ON, False, "stop before training", later="dry runs"),
    ),
)

PROCESSES = FlagGroup(
    "device and processes",
    (
        Flag(
            "--device",
            str,
            "cpu",
            "where to compute",
            choices=("cpu", "cuda", "mps", "xpu"),
            later_values={"mps": "Apple GPUs"},
        ),
        Flag(
            "--default_dtype",
            str,
            "float64",
            "floating type of data and model",
            choices=("float32", "float64"),
        ),
        Flag(
            "--distributed",
            ON,
            False,
            "train in several processes, one for each device; implied when a launcher started them",
        ),
        Flag(
            "--launcher",
            str,
            None,
            "what started the processes; recognised when not given",
            choices=("slurm", "torchrun", "mpi", "none"),
        ),
        Flag(
            "--dist_timeout",
            float,
            None,
            "seconds that processes wait for each other at the start and in every exchange (torch's default)",
            limit=POSITIVE,
        ),
        Flag("--dist_debug", ON, False, "log every exchange between processes, and let torch check them"),
        Flag("--log_all_ranks", ON, False, "a log file for each process: <tag>_rank<n>.log"),
        Flag(
            "--enable_cueq",
            str2bool,
            False,
            "train with cuequivariance kernels; models are converted back before saving",
        ),
        Flag("--only_cueq", str2bool, False, "keep the cuequivariance form", later="cuequivariance models"),
        Flag(
            "--enable_oeq", str2bool, False, "train with openequivariance kernels", later="openequivariance"
        ),
    ),
)

CHECKPOINTS = FlagGroup(
    "checkpoints",
    (
        Flag("--eval_interval", int, 1, "evaluate every n-th epoch", limit=AT_LEAST_ONE),
        Flag("--keep_checkpoints", ON, False, "delete no older checkpoint"),
        Flag("--save_all_checkpoints", ON, False, "also save evaluations without improvement"),
        Flag("--restart_latest", ON, False, "continue from the newest checkpoint of the same tag"),
        Flag(
            "--save_cpu",
            ON,
            False,
            "accepted for compatibility: model files are always written for the CPU",
        ),
    ),
)

REPORT = FlagGroup(
    "tables and plots",
    (
        Flag(
            "--error_table",
            str,
            "PerAtomRMSE",
            "layout of the validation lines and of the final tables",
            choices=ERROR_TABLES,
            later_values=_LATER_TABLES,
        ),
        Flag("--skip_evaluate_heads", str, "pt_head", "heads left out of the final tables, comma separated"),
        Flag("--plot", str2bool, False, "plot at the end", later="plots"),
        Flag("--plot_frequency", int, 0, "plot every n epochs (0: at the end)", later="plots"),
        Flag("--plot_interaction_e", str2bool, False, "plot energies without E0s", later="plots"),
    ),
)

WANDB = FlagGroup(
    "Weights and Biases",
    (
        Flag("--wandb", ON, False, "record the run (needs the package wandb)"),
        Flag("--wandb_dir", str, None, "its folder"),
        Flag("--wandb_project", str, "", "its project"),
        Flag("--wandb_entity", str, "", "its entity"),
        Flag("--wandb_name", str, "", "its name for the run"),
        Flag(
            "--wandb_log_hypers", str, list(WANDB_HYPERS), "arguments recorded as hyper-parameters", nargs="+"
        ),
    ),
)
