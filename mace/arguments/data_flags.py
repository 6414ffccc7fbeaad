"""Flags about files, labels and heads, and about fine-tuning."""

from mace.arguments.flags import OFF, Flag, FlagGroup
from mace.arguments.limits import FINITE, NOT_NEGATIVE, POSITIVE
from mace.arguments.parsing import str2bool

_TUNING = "fine-tuning of foundation models"
_DIELECTRIC = "dielectric models"
_EMBEDDINGS = "extra embeddings"

EMPTY_POTENTIAL = Flag(
    "--empty_potential_value",
    float,
    -10000.0,
    "a Fermi level of this value means that the frame has no label; so does its absence",
    limit=FINITE,
)
# Flags of the keys of every label; also taken by the command that prepares data.
KEY_FLAGS = (
    Flag("--energy_key", str, "REF_energy", "info key of energies, eV"),
    Flag("--forces_key", str, "REF_forces", "arrays key of forces, eV/Angstrom"),
    Flag("--virials_key", str, "REF_virials", "info key of virials, eV"),
    Flag("--stress_key", str, "REF_stress", "info key of stress, eV/Angstrom^3"),
    Flag("--dipole_key", str, "REF_dipole", "info key of dipoles, Debye"),
    Flag("--charges_key", str, "REF_charges", "arrays key of charges, e"),
    Flag("--electron_key", str, "electron", "info key of the number of electrons"),
    Flag("--potential_key", str, "potential", "info key of the Fermi level, V"),
    Flag("--head_key", str, "head", "info key of the head"),
    Flag("--polarizability_key", str, "polarizability", "info key of polarisabilities", later=_DIELECTRIC),
    Flag("--elec_temp_key", str, "elec_temp", "info key of electronic temperatures", later=_EMBEDDINGS),
    Flag("--total_spin_key", str, "total_spin", "info key of total spins", later=_EMBEDDINGS),
    Flag("--total_charge_key", str, "total_charge", "info key of total charges", later=_EMBEDDINGS),
)
CONFIG_TYPE_WEIGHTS = Flag(
    "--config_type_weights", str, '{"Default":1.0}', "weights of the config types, a dict"
)

DATA = FlagGroup(
    "data",
    (
        Flag(
            "--train_file",
            str,
            None,
            "training data: a file that ASE reads, or HDF5 (a file or folder)",
        ),
        Flag(
            "--valid_file",
            str,
            None,
            "validation data; without it they are split off the training data",
        ),
        Flag("--valid_fraction", float, 0.1, "fraction split off for validation"),
        Flag("--test_file", str, None, "test data, one set for each config_type"),
        Flag("--test_dir", str, None, "folder of HDF5 test sets, shards of one set together"),
        Flag("--multi_processed_test", str2bool, False, "every folder in test_dir is a test set"),
        Flag("--num_workers", int, 0, "loader processes", limit=NOT_NEGATIVE),
        Flag("--pin_memory", str2bool, True, "pin host memory in loaders"),
        Flag("--atomic_numbers", str, None, "elements of the model, a list; without it those of the data"),
        Flag(
            "--mean",
            float,
            None,
            "mean energy per atom without E0s, eV; measured when not given",
            limit=FINITE,
        ),
        Flag("--std", float, None, "scale of the output; measured when not given", limit=POSITIVE),
        Flag("--statistics_file", str, None, "statistics.json of mace_prepare_data"),
        Flag("--E0s", str, None, "energies of isolated atoms: average, a .json file, or a dict Z -> eV"),
        Flag("--keep_isolated_atoms", str2bool, False, "train on IsolatedAtom frames too"),
        Flag("--heads", str, None, "dict of heads: name -> dict of files, E0s, keys ..."),
        CONFIG_TYPE_WEIGHTS,
        EMPTY_POTENTIAL,
    ),
)

KEYS = FlagGroup("names of the labels in the files", KEY_FLAGS)

FINE_TUNING = FlagGroup(
    "fine-tuning",
    (
        Flag("--foundation_model", str, None, "model to start from", later=_TUNING),
        Flag("--foundation_model_readout", OFF, True, "do not copy its readouts", later=_TUNING),
        Flag("--foundation_filter_elements", str2bool, True, "keep the data's elements only", later=_TUNING),
        Flag("--foundation_model_elements", str2bool, False, "keep all of its elements", later=_TUNING),
        Flag("--foundation_model_kwargs", str, "{}", "arguments of its loader", later=_TUNING),
        Flag("--foundation_head", str, None, "head of it to keep", later=_TUNING),
        Flag("--multiheads_finetuning", str2bool, True, "replay its data in a head of their own"),
        Flag("--weight_pt_head", float, 1.0, "weight of replayed data", later=_TUNING),
        Flag("--num_samples_pt", int, 1000, "number of replayed frames", later=_TUNING),
        Flag("--force_mh_ft_lr", str2bool, False, "keep lr and ema as given", later=_TUNING),
        Flag(
            "--subselect_pt",
            str,
            "random",
            "choice of replayed frames",
            choices=("fps", "random"),
            later=_TUNING,
        ),
        Flag("--pt_train_file", str, None, "file of replayed data", later=_TUNING),
        Flag("--pt_valid_file", str, None, "its validation data", later=_TUNING),
        Flag("--pseudolabel_replay", str2bool, False, "label replayed data with the model", later=_TUNING),
        Flag("--pseudolabel_replay_compute_stress", str2bool, False, "stress labels too", later=_TUNING),
        Flag("--real_pt_data_ratio_threshold", float, 0.1, "ratio below which data repeat", later=_TUNING),
        Flag(
            "--filter_type_pt",
            str,
            "none",
            "element filter of replayed data",
            choices=("none", "combinations", "inclusive", "exclusive"),
            later=_TUNING,
        ),
        Flag(
            "--disallow_random_padding_pt",
            OFF,
            True,
            "no random frames among replayed data",
            dest="allow_random_padding_pt",
            later=_TUNING,
        ),
        Flag("--lora", str2bool, False, "low-rank adapters", later=_TUNING),
        Flag("--lora_rank", int, 4, "rank of the adapters", later=_TUNING),
        Flag("--lora_alpha", float, 1.0, "scale of the adapters", later=_TUNING),
        Flag("--freeze", int, None, "layers to freeze", later=_TUNING),
    ),
)
