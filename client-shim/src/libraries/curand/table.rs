//! Every function of the host interface of cuRAND, in the [form of all doors](crate::doors::table). Files of the library tell their versions apart by name, so a
//! row's version says nothing but that the library is the first of its name.

use super::{generate, generator};
use crate::doors::table::entry_points;

entry_points! {
    /// The functions, ascending by name.
    static TABLE refusing by super::refuse;
    curandCreateGenerator 1 [generator::curandCreateGenerator];
    curandCreateGeneratorHost 1 [generator::curandCreateGeneratorHost];
    curandCreatePoissonDistribution 1 [unsupported];
    curandDestroyDistribution 1 [unsupported];
    curandDestroyGenerator 1 [generator::curandDestroyGenerator];
    curandGenerate 1 [generate::curandGenerate];
    curandGenerateBinomial 1 [generate::curandGenerateBinomial];
    curandGenerateBinomialMethod 1 [generate::curandGenerateBinomialMethod];
    curandGenerateLogNormal 1 [generate::curandGenerateLogNormal];
    curandGenerateLogNormalDouble 1 [generate::curandGenerateLogNormalDouble];
    curandGenerateLongLong 1 [generate::curandGenerateLongLong];
    curandGenerateNormal 1 [generate::curandGenerateNormal];
    curandGenerateNormalDouble 1 [generate::curandGenerateNormalDouble];
    curandGeneratePoisson 1 [generate::curandGeneratePoisson];
    curandGeneratePoissonMethod 1 [generate::curandGeneratePoissonMethod];
    curandGenerateSeeds 1 [generator::curandGenerateSeeds];
    curandGenerateUniform 1 [generate::curandGenerateUniform];
    curandGenerateUniformDouble 1 [generate::curandGenerateUniformDouble];
    curandGetDirectionVectors32 1 [unsupported];
    curandGetDirectionVectors64 1 [unsupported];
    curandGetProperty 1 [generator::curandGetProperty];
    curandGetScrambleConstants32 1 [unsupported];
    curandGetScrambleConstants64 1 [unsupported];
    curandGetVersion 1 [generator::curandGetVersion];
    curandSetGeneratorOffset 1 [generator::curandSetGeneratorOffset];
    curandSetGeneratorOrdering 1 [generator::curandSetGeneratorOrdering];
    curandSetPseudoRandomGeneratorSeed 1 [generator::curandSetPseudoRandomGeneratorSeed];
    curandSetQuasiRandomGeneratorDimensions 1 [generator::curandSetQuasiRandomGeneratorDimensions];
    curandSetStream 1 [generator::curandSetStream];
}
