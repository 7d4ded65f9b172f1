"""What happened to a request, recorded at the seams and told in 13 stages."""
