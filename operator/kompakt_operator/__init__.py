"""kopf operator: TrainingJob to Service and gated pods, injection, status."""
