"""Flags of ``mace_run_train`` about the model."""

from mace.arguments.flags import ON, Flag, FlagGroup
from mace.arguments.limits import AT_LEAST_ONE, DEGREE, NOT_NEGATIVE, POSITIVE
from mace.arguments.parsing import str2bool

_OPTIONS = "model options of mace-torch 0.3.16"
_POLAR = "PolarMACE"
_DIELECTRIC = "dielectric models"
_NON_LINEAR = "RealAgnosticResidualNonLinearInteractionBlock"
TWO_BODY_BLOCKS = (
    "ResidualElementDependentInteractionBlock",
    "AgnosticNonlinearInteractionBlock",
    "AgnosticResidualNonlinearInteractionBlock",
)

MODELS = FlagGroup(
    "model",
    (
        Flag(
            "--model",
            str,
            "MACE",
            "architecture; the FermiMACE models take the electron number and give the Fermi level",
            choices=(
                "BOTNet",
                "MACE",
                "FermiMACE",
                "FermiMACE_uncertainty",
                "FermiMACE_evidential",
                "FermiMACE_2",
                "ScaleShiftMACE",
                "ScaleShiftBOTNet",
                "AtomicDipolesMACE",
                "EnergyDipolesMACE",
                "PolarMACE",
                "MACELES",
                "AtomicDielectricMACE",
            ),
            later_values={
                "AtomicDielectricMACE": _DIELECTRIC,
                "PolarMACE": _POLAR,
                "MACELES": "MACELES",
            },
        ),
        Flag("--r_max", float, 5.0, "cutoff radius, Angstrom", limit=POSITIVE),
        Flag(
            "--radial_type",
            str,
            "bessel",
            "radial basis",
            choices=("bessel", "gaussian", "chebyshev"),
        ),
        Flag("--num_radial_basis", int, 8, "number of radial functions", limit=AT_LEAST_ONE),
        Flag("--num_cutoff_basis", int, 5, "exponent of the polynomial cutoff", limit=AT_LEAST_ONE),
        Flag("--pair_repulsion", ON, False, "add the ZBL pair repulsion"),
        Flag(
            "--distance_transform",
            str,
            "None",
            "transform of the distances before the radial basis",
            choices=("None", "Agnesi", "Soft"),
        ),
        Flag(
            "--interaction",
            str,
            "RealAgnosticResidualInteractionBlock",
            "interaction block of every layer but the first; the last three are those of BOTNet",
            choices=(
                "RealAgnosticResidualInteractionBlock",
                "RealAgnosticAttResidualInteractionBlock",
                "RealAgnosticInteractionBlock",
                "RealAgnosticDensityInteractionBlock",
                "RealAgnosticDensityResidualInteractionBlock",
                _NON_LINEAR,
                *TWO_BODY_BLOCKS,
            ),
            later_values={_NON_LINEAR: _OPTIONS},
        ),
        Flag(
            "--interaction_first",
            str,
            "RealAgnosticResidualInteractionBlock",
            "interaction block of the first layer; MACE and FermiMACE take RealAgnosticInteractionBlock "
            "unless a block without a residual is given",
            choices=(
                "RealAgnosticResidualInteractionBlock",
                "RealAgnosticInteractionBlock",
                "RealAgnosticDensityInteractionBlock",
                "RealAgnosticDensityResidualInteractionBlock",
                _NON_LINEAR,
                *TWO_BODY_BLOCKS,
            ),
            later_values={_NON_LINEAR: _OPTIONS},
        ),
        Flag("--max_ell", int, 3, "highest degree of the spherical harmonics", limit=DEGREE),
        Flag(
            "--correlation",
            int,
            3,
            "correlation order of every layer (body order minus 1)",
            limit=AT_LEAST_ONE,
        ),
        Flag("--num_interactions", int, 2, "number of layers", limit=AT_LEAST_ONE),
        Flag(
            "--MLP_irreps",
            str,
            "16x0e",
            "hidden irreps of the last readout, for each head; dipole models take 16x0e+16x1o",
        ),
        Flag("--radial_MLP", str, "[64, 64, 64]", "widths of the radial network"),
        Flag("--hidden_irreps", str, None, "irreps of the node features, e.g. 128x0e+128x1o"),
        Flag(
            "--num_channels",
            int,
            None,
            "channels of the node features, in place of hidden_irreps",
            limit=AT_LEAST_ONE,
        ),
        Flag(
            "--max_L",
            int,
            None,
            "highest degree of the node features, in place of hidden_irreps",
            limit=NOT_NEGATIVE,
        ),
        Flag(
            "--gate",
            str,
            "silu",
            "nonlinearity of the last readout",
            choices=("silu", "tanh", "abs", "None"),
        ),
        Flag(
            "--scaling",
            str,
            "rms_forces_scaling",
            "how the scale of the output is measured on the training data",
            choices=("std_scaling", "rms_forces_scaling", "no_scaling"),
        ),
        Flag(
            "--avg_num_neighbors",
            float,
            1,
            "number of neighbours, used when it is not measured",
            limit=POSITIVE,
        ),
        Flag("--compute_avg_num_neighbors", str2bool, True, "measure the number of neighbours"),
        Flag("--compute_stress", str2bool, False, "ask for the stress in training; on for stress losses"),
        Flag(
            "--compute_potential",
            str2bool,
            None,
            "ask for the Fermi level in training; when not given: on for the models that have one",
        ),
        Flag("--compute_forces", str2bool, True, "ask for the forces in training"),
    ),
)

MODEL_OPTIONS = FlagGroup(
    "further model options",
    (
        Flag("--apply_cutoff", str2bool, True, "cut off the radial basis before its network", later=_OPTIONS),
        Flag("--use_last_readout_only", str2bool, False, "energy from the last readout only", later=_OPTIONS),
        Flag("--use_embedding_readout", str2bool, False, "readout of the embedding", later=_OPTIONS),
        Flag("--use_reduced_cg", str2bool, False, "leave out couplings of products that add nothing"),
        Flag("--use_so3", str2bool, False, "SO(3) couplings instead of O(3)", later=_OPTIONS),
        Flag("--use_agnostic_product", str2bool, False, "product weights without elements", later=_OPTIONS),
        Flag("--edge_irreps", str, None, "irreps of the edge features", later=_OPTIONS),
        Flag("--use_edge_irreps_first", str2bool, False, "edge_irreps in the first layer", later=_OPTIONS),
        Flag("--embedding_specs", str, None, "extra embeddings of graphs or atoms", later=_OPTIONS),
        Flag("--compute_polarizability", str2bool, False, "ask for the polarisability", later=_DIELECTRIC),
        Flag("--compute_atomic_dipole", str2bool, False, "ask for atomic dipoles", later=_DIELECTRIC),
        Flag("--les_arguments", str, None, "YAML file of the latent Ewald sum", later="MACELES"),
        Flag("--kspace_cutoff_factor", float, 1.5, "reciprocal cutoff factor", later=_POLAR),
        Flag("--atomic_multipoles_max_l", int, 0, "multipole order", later=_POLAR),
        Flag("--atomic_multipoles_smearing_width", float, 1.0, "width of the charges", later=_POLAR),
        Flag("--field_feature_max_l", int, 0, "order of the field features", later=_POLAR),
        Flag("--field_feature_widths", str, "[1.0]", "widths of the field features", later=_POLAR),
        Flag("--field_feature_norms", str, None, "norms of the field features", later=_POLAR),
        Flag("--num_recursion_steps", int, 1, "steps of the fixed point", later=_POLAR),
        Flag("--field_si", str2bool, False, "self interaction of the field", later=_POLAR),
        Flag("--include_electrostatic_self_interaction", str2bool, False, "self energy", later=_POLAR),
        Flag("--add_local_electron_energy", str2bool, False, "local electron energy", later=_POLAR),
        Flag("--quadrupole_feature_corrections", str2bool, False, "quadrupole corrections", later=_POLAR),
        Flag("--return_electrostatic_potentials", str2bool, False, "return the potentials", later=_POLAR),
        Flag("--field_norm_factor", float, 0.02, "normaliser of the field", later=_POLAR),
        Flag("--fixedpoint_update_config", str, None, "settings of the update block", later=_POLAR),
        Flag("--field_readout_config", str, None, "settings of the readout", later=_POLAR),
    ),
)
