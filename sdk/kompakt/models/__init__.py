"""The types of what stands in a TrainingJob, made from the declarations that the CRD is made of."""
